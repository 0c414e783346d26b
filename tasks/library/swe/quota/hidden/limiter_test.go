package quota_test

import (
	"fmt"
	"testing"
	"time"

	. "example.org/quota"
)

func limiter(rate float64, burst int) (*Limiter, *hands) {
	clock := newHands()
	return NewLimiter(Rule{Rate: rate, Burst: burst, Clock: clock}), clock
}

func TestKeysAreApart(t *testing.T) {
	l, _ := limiter(1, 2)
	for _, key := range []string{"a", "b", ""} {
		if !l.Allow(key, 2) || l.Allow(key, 1) {
			t.Errorf("key %q", key)
		}
	}
	if l.Len() != 3 {
		t.Errorf("got %d buckets, want 3", l.Len())
	}
}

func TestSweepDropsWhatIsFull(t *testing.T) {
	l, clock := limiter(1, 10)
	for i := 0; i < 10; i++ {
		l.Allow(fmt.Sprint(i), i+1)
	}
	clock.move(4 * time.Second)
	if dropped := l.Sweep(); dropped != 4 || l.Len() != 6 {
		t.Errorf("dropped %d, kept %d, want 4 and 6", dropped, l.Len())
	}
	clock.move(time.Hour)
	if dropped := l.Sweep(); dropped != 6 || l.Len() != 0 {
		t.Errorf("dropped %d, kept %d, want 6 and 0", dropped, l.Len())
	}
}

func TestSweepGivesNobodyTokens(t *testing.T) {
	l, clock := limiter(1, 10)
	l.Allow("a", 10)
	for i := 0; i < 9; i++ {
		clock.move(time.Second)
		l.Sweep()
	}
	if l.Allow("a", 10) {
		t.Error("after 9 seconds there are 9 tokens")
	}
	if !l.Allow("a", 9) {
		t.Error("9 tokens should be there")
	}
}

func TestSweepOfAKeyThatIsUsedAllTheTime(t *testing.T) {
	l, clock := limiter(1, 2)
	taken := 0
	for i := 0; i < 100; i++ {
		if l.Allow("a", 1) {
			taken++
		}
		l.Sweep()
		clock.move(100 * time.Millisecond)
	}
	if taken < 11 || taken > 12 {
		t.Errorf("took %d tokens in 10 s, want 2 and one a second", taken)
	}
}
