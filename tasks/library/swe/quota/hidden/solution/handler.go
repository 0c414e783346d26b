package quota

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Handler lets a request pass to next if its client has a token left, and answers 429 otherwise.
func Handler(limiter *Limiter, clients Clients, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed, after := limiter.ask(clients.Key(r), 1)
		if !allowed {
			w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(after)))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// retrySeconds is a number of whole seconds after which a request passes.
func retrySeconds(after time.Duration) int {
	return int(math.Max(1, math.Ceil(after.Seconds())))
}
