// Package quota limits how often something may happen. See the README.
package quota

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// ErrTooMany says that more tokens were asked for than a bucket can hold.
var ErrTooMany = errors.New("quota: more tokens than the bucket can hold")

// Rule says how many tokens a bucket gains each second, and how many it holds.
type Rule struct {
	Rate  float64
	Burst int
	Clock Clock // nil: the clock of the machine
}

// Bucket is a token bucket.
type Bucket struct {
	rule   Rule
	mutex  sync.Mutex
	tokens float64 // below 0: reserved by those who wait
	at     time.Time
}

// NewBucket makes a bucket that is full. It panics if the rate or the burst is not above 0.
func NewBucket(rule Rule) *Bucket {
	if !(rule.Rate > 0) || rule.Burst < 1 {
		panic("quota: rate and burst must be above 0")
	}
	if rule.Clock == nil {
		rule.Clock = SystemClock{}
	}
	return &Bucket{rule: rule, tokens: float64(rule.Burst), at: rule.Clock.Now()}
}

// Allow takes n tokens if there are that many.
func (b *Bucket) Allow(n int) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.refill()
	if b.tokens < float64(n) {
		return false
	}
	b.tokens -= float64(n)
	return true
}

// After says how long it takes until n tokens are there.
func (b *Bucket) After(n int) time.Duration {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.refill()
	return b.missing(n)
}

// Wait takes n tokens as soon as they are there.
func (b *Bucket) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > b.rule.Burst {
		return ErrTooMany
	}
	wait, err := b.reserve(ctx, n)
	if err != nil || wait == 0 {
		return err
	}
	if err := b.rule.Clock.Sleep(ctx, wait); err != nil {
		b.giveBack(n)
		return err
	}
	return nil
}

// full says whether a new bucket would be the same.
func (b *Bucket) full() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.refill()
	return b.tokens >= float64(b.rule.Burst)
}

// reserve takes the tokens now and says how long to wait before they may be used.
func (b *Bucket) reserve(ctx context.Context, n int) (time.Duration, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := b.refill()
	wait := b.missing(n)
	if deadline, ok := ctx.Deadline(); ok && now.Add(wait).After(deadline) {
		return 0, context.DeadlineExceeded
	}
	b.tokens -= float64(n)
	return wait, nil
}

func (b *Bucket) giveBack(n int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.refill()
	b.tokens = math.Min(b.tokens+float64(n), float64(b.rule.Burst))
}

// missing is how long it takes until n tokens are there, rounded up to a nanosecond. The mutex is held.
func (b *Bucket) missing(n int) time.Duration {
	seconds := (float64(n) - b.tokens) / b.rule.Rate
	return time.Duration(math.Ceil(math.Max(0, seconds) * float64(time.Second)))
}

// refill adds what was gained since the last time, and returns the present time. The mutex is held.
func (b *Bucket) refill() time.Time {
	now := b.rule.Clock.Now()
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = math.Min(b.tokens+passed.Seconds()*b.rule.Rate, float64(b.rule.Burst))
		b.at = now
	}
	return now
}
