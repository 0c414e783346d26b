package quota_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	. "example.org/quota"
)

var trusted = Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}

func request(peer string, forwarded ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	for _, value := range forwarded {
		r.Header.Add("X-Forwarded-For", value)
	}
	return r
}

func TestClient(t *testing.T) {
	for name, one := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"peer":                    {"192.0.2.7:1234", nil, "192.0.2.7"},
		"a liar is not believed":  {"192.0.2.7:1234", []string{"198.51.100.1"}, "192.0.2.7"},
		"one proxy":               {"10.0.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		"a lie before the truth":  {"10.0.0.1:80", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		"many lies":               {"10.0.0.1:80", []string{"1.1.1.1,2.2.2.2,3.3.3.3, 198.51.100.1"}, "198.51.100.1"},
		"two proxies":             {"10.0.0.1:80", []string{"203.0.113.9, 198.51.100.1, 10.2.3.4"}, "198.51.100.1"},
		"a lie that looks ours":   {"10.0.0.1:80", []string{"10.9.9.9, 198.51.100.1, 10.2.3.4"}, "198.51.100.1"},
		"several headers":         {"10.0.0.1:80", []string{"203.0.113.9", "198.51.100.1", "10.2.3.4"}, "198.51.100.1"},
		"all are ours":            {"10.0.0.1:80", []string{"10.5.5.5, 10.2.3.4"}, "10.5.5.5"},
		"no header":               {"10.0.0.1:80", nil, "10.0.0.1"},
		"nonsense":                {"10.0.0.1:80", []string{"unknown"}, "10.0.0.1"},
		"nonsense before a proxy": {"10.0.0.1:80", []string{"198.51.100.1, what?, 10.2.3.4"}, "10.2.3.4"},
		"an empty entry":          {"10.0.0.1:80", []string{"198.51.100.1, "}, "10.0.0.1"},
		"a proxy with IPv6":       {"[fd00::1]:80", []string{"198.51.100.1"}, "198.51.100.1"},
		"no address":              {"@", nil, "@"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := trusted.Key(request(one.peer, one.forwarded...)); got != one.want {
				t.Errorf("got %q, want %q", got, one.want)
			}
		})
	}
}

func TestClientWithIPv6(t *testing.T) {
	for name, one := range map[string]struct{ first, second string }{
		"one network":         {"[2001:db8:1:2::1]:80", "[2001:db8:1:2:ffff::9]:443"},
		"mapped is IPv4":      {"[::ffff:192.0.2.7]:80", "192.0.2.7:80"},
		"a zone says nothing": {"[fe80::1%eth0]:80", "[fe80::2%eth1]:80"},
	} {
		t.Run(name, func(t *testing.T) {
			if one, other := trusted.Key(request(one.first)), trusted.Key(request(one.second)); one != other {
				t.Errorf("%q and %q should be the same", one, other)
			}
		})
	}
	if trusted.Key(request("[2001:db8:1:2::1]:80")) == trusted.Key(request("[2001:db8:1:3::1]:80")) {
		t.Error("two networks should not be the same")
	}
	if trusted.Key(request("[::ffff:192.0.2.7]:80")) == trusted.Key(request("[::ffff:192.0.2.8]:80")) {
		t.Error("two addresses of IPv4 should not be the same")
	}
}

func TestMappedAddressesAreForwarded(t *testing.T) {
	if got := trusted.Key(request("[::ffff:10.0.0.1]:80", "::ffff:198.51.100.1")); got != "198.51.100.1" {
		t.Errorf("got %q", got)
	}
	if got := trusted.Key(request("10.0.0.1:80", "2001:db8:1:2:3::4")); got != trusted.Key(request("[2001:db8:1:2::1]:80")) {
		t.Errorf("got %q", got)
	}
}

func TestRetryAfter(t *testing.T) {
	for name, one := range map[string]struct {
		rate  float64
		pause time.Duration
		want  string
	}{
		"half a second":      {2, 0, "1"},
		"a second":           {1, 0, "1"},
		"a bit less":         {1, 100 * time.Millisecond, "1"},
		"a second and a bit": {0.9, 0, "2"},
		"four seconds":       {0.25, 0, "4"},
		"three and a bit":    {0.25, 900 * time.Millisecond, "4"},
		"a millisecond":      {1000, 0, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			l, clock := limiter(one.rate, 1)
			handler := Handler(l, trusted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
			serve := func() *httptest.ResponseRecorder {
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, request("192.0.2.7:1234"))
				return recorder
			}
			if code := serve().Code; code != 200 {
				t.Fatalf("the first: got %d", code)
			}
			clock.move(one.pause)
			second := serve()
			if second.Code != 429 || second.Header().Get("Retry-After") != one.want {
				t.Fatalf("got %d and %q, want 429 and %q", second.Code, second.Header().Get("Retry-After"), one.want)
			}
			seconds, _ := time.ParseDuration(one.want + "s")
			clock.move(seconds)
			if code := serve().Code; code != 200 {
				t.Errorf("after that time: got %d", code)
			}
		})
	}
}

func TestARefusedRequestTakesNothing(t *testing.T) {
	l, clock := limiter(1, 1)
	calls := 0
	handler := Handler(l, Clients{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls++ }))
	for i := 0; i < 10; i++ {
		handler.ServeHTTP(httptest.NewRecorder(), request("192.0.2.7:1234"))
	}
	clock.move(time.Second)
	handler.ServeHTTP(httptest.NewRecorder(), request("192.0.2.7:999"))
	handler.ServeHTTP(httptest.NewRecorder(), request("192.0.2.8:1234"))
	if calls != 3 {
		t.Errorf("%d requests passed, want 3", calls)
	}
}
