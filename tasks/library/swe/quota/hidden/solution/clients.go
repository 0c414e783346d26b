package quota

import (
	"net/http"
	"net/netip"
	"strings"
)

// Clients tells who sent a request.
type Clients struct {
	Trusted []netip.Prefix // the networks of our own proxies
}

// Key names the client of a request: an IPv4 address, a /64 network of IPv6, or the peer as it stands if it is neither.
func (c Clients) Key(request *http.Request) string {
	peer, ok := peerOf(request)
	if !ok {
		return request.RemoteAddr
	}
	return keyOf(c.client(peer, request.Header.Values("X-Forwarded-For")))
}

// client walks from our side to the other, as long as it can believe what was forwarded.
func (c Clients) client(peer netip.Addr, headers []string) netip.Addr {
	found := peer
	entries := strings.Split(strings.Join(headers, ","), ",")
	for i := len(entries) - 1; i >= 0 && c.trusts(found); i-- {
		address, err := netip.ParseAddr(strings.TrimSpace(entries[i]))
		if err != nil {
			break
		}
		found = address.Unmap().WithZone("")
	}
	return found
}

func (c Clients) trusts(address netip.Addr) bool {
	for _, network := range c.Trusted {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

func peerOf(request *http.Request) (netip.Addr, bool) {
	peer, err := netip.ParseAddrPort(request.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	return peer.Addr().Unmap().WithZone(""), true
}

func keyOf(address netip.Addr) string {
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64)
	return network.String()
}
