package quota

import (
	"sync"
	"time"
)

// Limiter has a bucket for each key.
type Limiter struct {
	rule    Rule
	mutex   sync.Mutex
	buckets map[string]*Bucket
}

// NewLimiter makes a limiter whose buckets all follow one rule. It panics as NewBucket does.
func NewLimiter(rule Rule) *Limiter {
	NewBucket(rule)
	return &Limiter{rule: rule, buckets: map[string]*Bucket{}}
}

// Allow takes n tokens of a key if there are that many.
func (l *Limiter) Allow(key string, n int) bool {
	allowed, _ := l.ask(key, n)
	return allowed
}

// ask takes n tokens of a key, or says how long it takes until they are there.
func (l *Limiter) ask(key string, n int) (bool, time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	bucket := l.buckets[key]
	if bucket == nil {
		bucket = NewBucket(l.rule)
		l.buckets[key] = bucket
	}
	if bucket.Allow(n) {
		return true, 0
	}
	return false, bucket.After(n)
}

// Len is the number of buckets that are kept.
func (l *Limiter) Len() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.buckets)
}

// Sweep drops the buckets that are full, and says how many.
func (l *Limiter) Sweep() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	dropped := 0
	for key, bucket := range l.buckets {
		if bucket.full() {
			delete(l.buckets, key)
			dropped++
		}
	}
	return dropped
}
