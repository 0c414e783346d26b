package quota_test

import (
	"context"
	"sync"
	"testing"
	"time"
)

// hands is a clock that stands still until it is moved.
type hands struct {
	mutex    sync.Mutex
	now      time.Time
	sleepers []*sleeper
}

type sleeper struct {
	until time.Time
	wake  chan struct{}
}

func newHands() *hands {
	return &hands{now: time.Date(2024, 5, 17, 12, 0, 0, 0, time.UTC)}
}

func (h *hands) Now() time.Time {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.now
}

func (h *hands) Sleep(ctx context.Context, duration time.Duration) error {
	h.mutex.Lock()
	one := &sleeper{h.now.Add(duration), make(chan struct{})}
	h.sleepers = append(h.sleepers, one)
	h.mutex.Unlock()
	select {
	case <-one.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hands) move(duration time.Duration) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.now = h.now.Add(duration)
	var left []*sleeper
	for _, one := range h.sleepers {
		if one.until.After(h.now) {
			left = append(left, one)
		} else {
			close(one.wake)
		}
	}
	h.sleepers = left
}

// sleeping waits until n goroutines sleep.
func (h *hands) sleeping(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mutex.Lock()
		count := len(h.sleepers)
		h.mutex.Unlock()
		if count == n {
			return
		}
	}
	t.Fatalf("never did %d goroutines sleep", n)
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting")
		return nil
	}
}
