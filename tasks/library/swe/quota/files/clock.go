package quota

import (
	"context"
	"time"
)

// Clock tells the time and waits. Tests have one of their own.
type Clock interface {
	Now() time.Time
	// Sleep returns nil after the duration, or the context's error if that ends before.
	Sleep(ctx context.Context, duration time.Duration) error
}

// SystemClock is the clock of the machine.
type SystemClock struct{}

func (SystemClock) Now() time.Time { return time.Now() }

func (SystemClock) Sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
