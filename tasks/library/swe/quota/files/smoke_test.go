package quota

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAllow(t *testing.T) {
	limiter := NewLimiter(Rule{Rate: 1, Burst: 2})
	for _, want := range []bool{true, true, false} {
		if got := limiter.Allow("a", 1); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if !limiter.Allow("b", 1) {
		t.Error("another key has a bucket of its own")
	}
}

func TestHandler(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})
	handler := Handler(NewLimiter(Rule{Rate: 1, Burst: 1}), Clients{}, next)
	for _, want := range []int{200, 429} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
		if recorder.Code != want {
			t.Errorf("got %d, want %d", recorder.Code, want)
		}
	}
}
