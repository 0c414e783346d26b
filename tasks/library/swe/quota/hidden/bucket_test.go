package quota_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "example.org/quota"
)

func bucket(rate float64, burst int) (*Bucket, *hands) {
	clock := newHands()
	return NewBucket(Rule{Rate: rate, Burst: burst, Clock: clock}), clock
}

func allow(t *testing.T, b *Bucket, n int, want bool) {
	t.Helper()
	if got := b.Allow(n); got != want {
		t.Fatalf("Allow(%d): got %v, want %v", n, got, want)
	}
}

func TestBucketIsFullAtFirst(t *testing.T) {
	b, _ := bucket(1, 3)
	allow(t, b, 4, false)
	allow(t, b, 3, true)
	allow(t, b, 1, false)
}

func TestBucketTakesAllOrNothing(t *testing.T) {
	b, _ := bucket(1, 3)
	allow(t, b, 2, true)
	allow(t, b, 2, false)
	allow(t, b, 1, true)
}

func TestBucketGains(t *testing.T) {
	b, clock := bucket(2, 3)
	allow(t, b, 3, true)
	clock.move(499 * time.Millisecond)
	allow(t, b, 1, false)
	clock.move(time.Millisecond)
	allow(t, b, 1, true)
	clock.move(time.Hour)
	allow(t, b, 3, true)
	allow(t, b, 1, false)
}

func TestBucketGainsTheSameIfAskedOften(t *testing.T) {
	for _, step := range []time.Duration{time.Millisecond, 7 * time.Millisecond, 90 * time.Millisecond, 999 * time.Millisecond} {
		b, clock := bucket(1, 5)
		allow(t, b, 5, true)
		taken := 0
		for passed := time.Duration(0); passed < 20*time.Second; passed += step {
			clock.move(step)
			if b.Allow(1) {
				taken++
			}
		}
		if taken < 19 || taken > 21 {
			t.Errorf("asked every %v, took %d tokens in 20 s, want 20", step, taken)
		}
	}
}

func TestBucketGainsAtSmallRates(t *testing.T) {
	b, clock := bucket(0.25, 2)
	allow(t, b, 2, true)
	for i := 0; i < 3; i++ {
		clock.move(time.Second)
		allow(t, b, 1, false)
	}
	clock.move(time.Second)
	allow(t, b, 1, true)
}

func TestBucketClockBackwards(t *testing.T) {
	b, clock := bucket(1, 10)
	allow(t, b, 4, true)
	clock.move(-time.Hour)
	allow(t, b, 6, true)
	allow(t, b, 1, false)
	clock.move(time.Hour)
	allow(t, b, 1, false)
	clock.move(time.Second)
	allow(t, b, 1, true)
}

// near allows for the rounding of fractions.
func near(got, want time.Duration) bool {
	return got > want-time.Microsecond && got < want+time.Microsecond
}

func TestBucketAfter(t *testing.T) {
	b, clock := bucket(4, 8)
	if got := b.After(8); got != 0 {
		t.Errorf("a full bucket: %v", got)
	}
	allow(t, b, 8, true)
	for n, want := range map[int]time.Duration{1: 250 * time.Millisecond, 4: time.Second, 8: 2 * time.Second} {
		if got := b.After(n); !near(got, want) {
			t.Errorf("After(%d): got %v, want %v", n, got, want)
		}
	}
	clock.move(600 * time.Millisecond)
	if got := b.After(3); !near(got, 150*time.Millisecond) {
		t.Errorf("got %v, want 150ms", got)
	}
	allow(t, b, 2, true)
}

func TestBucketRules(t *testing.T) {
	for _, rule := range []Rule{{Rate: 0, Burst: 1}, {Rate: -1, Burst: 1}, {Rate: 1, Burst: 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: want a panic", rule)
				}
			}()
			NewBucket(rule)
		}()
	}
}

func wait(b *Bucket, ctx context.Context, n int) <-chan error {
	done := make(chan error, 1)
	go func() { done <- b.Wait(ctx, n) }()
	return done
}

func TestWaitWithTokens(t *testing.T) {
	b, _ := bucket(1, 3)
	if err := b.Wait(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	allow(t, b, 1, false)
}

func TestWaitUntilTheyAreThere(t *testing.T) {
	b, clock := bucket(1, 3)
	allow(t, b, 3, true)
	done := wait(b, context.Background(), 2)
	clock.sleeping(t, 1)
	clock.move(1999 * time.Millisecond)
	clock.sleeping(t, 1)
	clock.move(time.Millisecond)
	if err := ended(t, done); err != nil {
		t.Fatal(err)
	}
	allow(t, b, 1, false)
}

func TestWaitInOrder(t *testing.T) {
	b, clock := bucket(1, 3)
	allow(t, b, 3, true)
	first := wait(b, context.Background(), 2)
	clock.sleeping(t, 1)
	second := wait(b, context.Background(), 1)
	clock.sleeping(t, 2)
	allow(t, b, 1, false)
	clock.move(2 * time.Second)
	if err := ended(t, first); err != nil {
		t.Fatal(err)
	}
	clock.sleeping(t, 1)
	clock.move(time.Second)
	if err := ended(t, second); err != nil {
		t.Fatal(err)
	}
	allow(t, b, 1, false)
}

func TestWaitForTooMany(t *testing.T) {
	b, _ := bucket(1, 3)
	if err := b.Wait(context.Background(), 4); !errors.Is(err, ErrTooMany) {
		t.Fatal(err)
	}
	allow(t, b, 3, true)
}

func TestWaitGivesBack(t *testing.T) {
	b, clock := bucket(1, 5)
	allow(t, b, 5, true)
	ctx, cancel := context.WithCancel(context.Background())
	done := wait(b, ctx, 5)
	clock.sleeping(t, 1)
	clock.move(2 * time.Second)
	cancel()
	if err := ended(t, done); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	allow(t, b, 2, true)
	allow(t, b, 1, false)
}

func TestWaitGivesBackNoMoreThanFits(t *testing.T) {
	b, clock := bucket(1, 5)
	allow(t, b, 5, true)
	ctx, cancel := context.WithCancel(context.Background())
	done := wait(b, ctx, 2)
	clock.sleeping(t, 1)
	// The sleeper hears of neither, as if it were slow.
	clock.mutex.Lock()
	clock.now = clock.now.Add(time.Hour)
	clock.mutex.Unlock()
	cancel()
	if err := ended(t, done); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	allow(t, b, 6, false)
	allow(t, b, 5, true)
	allow(t, b, 1, false)
}

func TestManyWhoGiveUpCostNothing(t *testing.T) {
	b, clock := bucket(1, 5)
	allow(t, b, 5, true)
	for i := 0; i < 50; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		done := wait(b, ctx, 5)
		clock.sleeping(t, i+1) // our clock keeps those who left
		cancel()
		if err := ended(t, done); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	clock.move(5 * time.Second)
	allow(t, b, 5, true)
}

func TestWaitWithADeadlineTooSoon(t *testing.T) {
	b, clock := bucket(1, 5)
	allow(t, b, 5, true)
	ctx, cancel := context.WithDeadline(context.Background(), clock.Now().Add(2*time.Second))
	defer cancel()
	// Our clock is in the past, so the machine takes the deadline for long over; the tokens must not be touched either way.
	if err := b.Wait(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	clock.move(time.Second)
	allow(t, b, 1, true)
}

func TestWaitFailsAtOnceIfTheDeadlineIsTooSoon(t *testing.T) {
	clock := newHands()
	clock.now = time.Now()
	b := NewBucket(Rule{Rate: 0.01, Burst: 5, Clock: clock})
	allow(t, b, 5, true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := ended(t, wait(b, ctx, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	clock.move(100 * time.Second)
	allow(t, b, 1, true)
}

func TestWaitWithAContextThatIsOver(t *testing.T) {
	b, _ := bucket(1, 5)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	allow(t, b, 5, true)
}

func TestManyGoroutinesTakeWhatThereIs(t *testing.T) {
	b, _ := bucket(1, 1000)
	var taken int64
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for j := 0; j < 500; j++ {
				if b.Allow(1) {
					atomic.AddInt64(&taken, 1)
				}
			}
		}()
	}
	group.Wait()
	if taken != 1000 {
		t.Errorf("took %d tokens, want 1000", taken)
	}
}
