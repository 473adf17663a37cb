// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// watching returns a bootstrap's file_watcher "files".
func watching(f bootstrap.CertFiles) map[string]bootstrap.CertProvider {
	f.RefreshInterval = time.Hour
	return map[string]bootstrap.CertProvider{"files": {Plugin: "file_watcher", Files: bootstrap.NewCertLoader(f)}}
}

// connect runs a handshake of a cluster's target, whose endpoint has a hostname, with the given
// server.
func connect(t *testing.T, c *Cluster, hostname string, server func(net.Conn)) (credentials.TLSInfo, error) {
	t.Helper()
	return connectWithin(t, time.Minute, c, hostname, server)
}

// connectWithin is connect for servers that do not come to an end.
func connectWithin(t *testing.T, limit time.Duration, c *Cluster, hostname string, server func(net.Conn)) (credentials.TLSInfo, error) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		server(conn)
	}()
	defer func() { _ = lis.Close(); <-done }()
	raw, err := net.Dial("tcp", lis.Addr().String())
	kit.Must(t, err)
	defer raw.Close()
	return shakeWithin(t, limit, c, hostname, raw)
}

// shakeWithin is connectWithin over a connection that there is.
func shakeWithin(t *testing.T, limit time.Duration, c *Cluster, hostname string, raw net.Conn) (credentials.TLSInfo, error) {
	t.Helper()
	var addr resolver.Address
	host := new(Host)
	host.Set(hostname)
	c.Secure(&addr, host)
	target, ok := TargetOf(addr.Attributes)
	if !ok {
		t.Fatal("the address carries nothing")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, info, plain, err := target.Handshake(ctx, raw)
	if plain {
		return credentials.TLSInfo{}, errPlain
	}
	tlsInfo, _ := info.(credentials.TLSInfo)
	return tlsInfo, err
}

var errPlain = errors.New("no TLS settings")

// serving shakes hands as a server does, and waits for the client to go.
func serving(config *tls.Config) func(net.Conn) {
	config.NextProtos = []string{"h2"}
	return func(conn net.Conn) {
		s := tls.Server(conn, config)
		if s.Handshake() == nil {
			_, _ = s.Read(make([]byte, 1))
		}
	}
}

// certified is the configuration of a server with a certificate.
func certified(ca *tlstest.CA, names tlstest.Names) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.Issue(names).TLS}}
}

// trusting returns a CA and a cluster, all of whose servers have certificates of the CA.
func trusting(t *testing.T) (*tlstest.CA, *Cluster) {
	t.Helper()
	ca, files := tlstest.NewCA(t, "ca"), tlstest.NewFiles(t)
	tlstest.Write(t, files.CA, ca.PEM)
	c := NewCluster("c", watching(bootstrap.CertFiles{CACertificateFile: files.CA}), true)
	t.Cleanup(c.Close)
	c.Update(&picker.TLS{Roots: picker.CertInstance{Instance: "files"}})
	return ca, c
}

// exact are matchers of whole names.
func exact(names ...string) (m []picker.StringMatch) {
	for _, name := range names {
		m = append(m, picker.StringMatch{Kind: picker.MatchExact, Value: name})
	}
	return m
}

// TestVerification (A29, A82, A101) checks which certificates a cluster accepts, and the errors
// for rejected ones.
func TestVerification(t *testing.T) {
	ca, other := tlstest.NewCA(t, "good"), tlstest.NewCA(t, "other")
	files := tlstest.NewFiles(t)
	tlstest.Write(t, files.CA, ca.PEM)
	providers := watching(bootstrap.CertFiles{CACertificateFile: files.CA})
	now := time.Now()
	dns := func(names ...string) tlstest.Pair { return ca.Issue(tlstest.Names{DNS: names}) }
	all := ca.Issue(tlstest.Names{DNS: []string{"a.example"}, URIs: []string{"spiffe://td.example/ns/x"}, Emails: []string{"m@e.example"}, IPs: []string{"10.0.0.1"}})
	prefix := picker.StringMatch{Kind: picker.MatchPrefix, Value: "spiffe://td.example/"}
	tests := []struct {
		name     string
		cert     tlstest.Pair
		tls      picker.TLS
		hostname string
		want     string // of the error; empty if it is accepted
	}{
		{name: "no names are asked for", cert: dns("any.example")},
		{name: "a DNS name", cert: all, tls: picker.TLS{SANs: exact("x", "A.example.")}},
		{name: "a URI", cert: all, tls: picker.TLS{SANs: exact("spiffe://td.example/ns/x")}},
		{name: "an e-mail address", cert: all, tls: picker.TLS{SANs: exact("m@e.example")}},
		{name: "an IP address", cert: all, tls: picker.TLS{SANs: exact("10.0.0.1")}},
		{name: "a prefix", cert: all, tls: picker.TLS{SANs: []picker.StringMatch{prefix}}},
		{name: "a regular expression", cert: all, tls: picker.TLS{SANs: []picker.StringMatch{{Kind: picker.MatchRegex, Regex: regexp.MustCompile(`^(?:m@.*)$`)}}}},
		{name: "without regard to case", cert: all, tls: picker.TLS{SANs: []picker.StringMatch{{Kind: picker.MatchExact, Value: "M@E.Example", IgnoreCase: true}}}},
		{name: "a wildcard", cert: dns("*.example"), tls: picker.TLS{SANs: exact("a.example")}},
		{name: "a wildcard of one label", cert: dns("*.example"), tls: picker.TLS{SANs: exact("a.b.example")}, want: "has names that do not match any"},
		{name: "a wildcard and no exact matcher", cert: dns("*.example"), tls: picker.TLS{SANs: []picker.StringMatch{{Kind: picker.MatchPrefix, Value: "a.exam"}}}, want: "has names that do not match any"},
		{name: "another name", cert: dns("b.example"), tls: picker.TLS{SANs: append(exact("a.example"), prefix)}, want: `for DNS "b.example") has names that do not match any of the accepted SANs (match_subject_alt_names): "a.example", prefix "spiffe://td.example/"`},
		{name: "no name", cert: dns(), tls: picker.TLS{SANs: exact("a.example")}, want: "for no name) has names that do not match"},
		{name: "expired", cert: ca.Issue(tlstest.Names{From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour)}), want: "has expired or is not yet valid"},
		{name: "not yet valid", cert: ca.Issue(tlstest.Names{From: now.Add(time.Hour), To: now.Add(2 * time.Hour)}), want: "is before"},
		{name: "another CA", cert: other.Issue(tlstest.Names{}), want: `issuer "CN=other", valid`},
		{name: "the system's roots", cert: dns("a"), tls: picker.TLS{SystemRoots: true}, want: "the system's roots"},
		{name: "A101: an SNI counts for nothing by itself", cert: dns("x"), tls: picker.TLS{ServerName: "a.example"}},
		{name: "A101: the SNI instead of names", cert: dns("a.example"), tls: picker.TLS{ServerName: "a.example", MatchServerName: true, SANs: exact("x")}},
		{name: "A101: the wrong one", cert: dns("b.example"), tls: picker.TLS{ServerName: "a.example", MatchServerName: true}, want: `has names that do not match the SNI "a.example"`},
		{name: "A101: the hostname, without its port", cert: dns("h.example"), tls: picker.TLS{ServerName: "a", AutoHostName: true, MatchServerName: true}, hostname: "h.example:443"},
		{name: "A101: a hostname that is only a port", cert: dns("a.example"), tls: picker.TLS{ServerName: "a.example", AutoHostName: true, MatchServerName: true}, hostname: ":443"},
		{name: "A101: a hostname that is only a port, and another name", cert: dns("b.example"), tls: picker.TLS{ServerName: "a.example", AutoHostName: true, MatchServerName: true}, hostname: ":443", want: `do not match the SNI "a.example"`},
		{name: "A101: no hostname", cert: dns("a.example"), tls: picker.TLS{ServerName: "a.example", AutoHostName: true, MatchServerName: true}},
		{name: "A101: no SNI at all", cert: dns("x"), tls: picker.TLS{MatchServerName: true, SANs: exact("y")}, want: "has names that do not match any"},
		{name: "A101: an address as the hostname", cert: all, tls: picker.TLS{AutoHostName: true, MatchServerName: true}, hostname: "10.0.0.2", want: `do not match the SNI "10.0.0.2"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCluster("c", providers, true)
			defer c.Close()
			if !tt.tls.SystemRoots {
				tt.tls.Roots.Instance = "files"
			}
			c.Update(&tt.tls)
			asked := make(chan string, 1)
			config := &tls.Config{Certificates: []tls.Certificate{tt.cert.TLS}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				asked <- h.ServerName
				return nil, nil
			}}
			info, err := connect(t, c, tt.hostname, serving(config))
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `cluster "c"`)) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if sni := <-asked; net.ParseIP(tt.hostname) == nil && tt.tls.AutoHostName && withoutPort(tt.hostname) != "" && sni != "h.example" || withoutPort(tt.hostname) == "" && sni != tt.tls.ServerName {
				t.Errorf("SNI %q", sni)
			}
			if err == nil && (info.SecurityLevel != credentials.PrivacyAndIntegrity || info.State.NegotiatedProtocol != "h2" || info.State.Version < tls.VersionTLS12) {
				t.Errorf("gRPC gets to know %+v", info)
			}
			if uris := tt.cert.TLS.Leaf.URIs; err == nil && len(uris) == 1 && (info.SPIFFEID == nil || *info.SPIFFEID != *uris[0]) {
				t.Errorf("SPIFFE id %v, want %v", info.SPIFFEID, uris[0])
			}
		})
	}
}

// TestTrustDomains (A87) checks that the roots belong to the trust domain of the certificate's
// SPIFFE ID, of which there must be exactly one.
func TestTrustDomains(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	files := tlstest.NewFiles(t)
	tlstest.Write(t, files.Bundles, ca.BundleMap("td.example"))
	tlstest.Write(t, files.CA, tlstest.NewCA(t, "not looked at").PEM)
	c := NewCluster("c", watching(bootstrap.CertFiles{CACertificateFile: files.CA, SPIFFEBundleMapFile: files.Bundles}), true)
	defer c.Close()
	c.Update(&picker.TLS{Roots: picker.CertInstance{Instance: "files"}})
	for _, tt := range []struct {
		issuer *tlstest.CA
		uris   []string
		want   string
	}{
		{ca, []string{"spiffe://td.example/a"}, ""},
		{ca, []string{"spiffe://td.example"}, ""},
		{ca, []string{"spiffe://else.example/a"}, `no roots for trust domain "else.example"`},
		{tlstest.NewCA(t, "ca"), []string{"spiffe://td.example/a"}, "unknown authority"},
		{ca, nil, "has 0 URIs, want one"},
		{ca, []string{"spiffe://td.example/a", "spiffe://td.example/b"}, "has 2 URIs, want one"},
		{ca, []string{"https://td.example/a"}, "is not a SPIFFE ID"},
		{ca, []string{"spiffe://td.example/a?x=y"}, "is not a SPIFFE ID"},
		{ca, []string{"spiffe://u@td.example/a"}, "is not a SPIFFE ID"},
		{ca, []string{"spiffe://td.example:1/a"}, "is not a SPIFFE ID"},
		{ca, []string{"spiffe://td.example/../a"}, "is not a SPIFFE ID"},
		{ca, []string{"spiffe://td.example/"}, "is not a SPIFFE ID"},
	} {
		_, err := connect(t, c, "", serving(certified(tt.issuer, tlstest.Names{URIs: tt.uris})))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %q", tt.uris, err, tt.want)
		}
	}
}

// TestHostileServers: a server that does not know TLS, or not well, or not h2, fails
// the handshake in time and with its reason.
func TestHostileServers(t *testing.T) {
	ca, c := trusting(t)
	cert := []tls.Certificate{ca.Issue(tlstest.Names{}).TLS}
	for _, tt := range []struct {
		name, want string
		server     func(net.Conn)
	}{
		{"TLS 1.1", "protocol version", serving(&tls.Config{Certificates: cert, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})},
		{"silence", "deadline exceeded", func(conn net.Conn) {
			for b := make([]byte, 4096); ; {
				if _, err := conn.Read(b); err != nil {
					return
				}
			}
		}},
		{"a byte at a time", "deadline exceeded", func(conn net.Conn) {
			for _, b := range append([]byte{22, 3, 3, 64, 0}, make([]byte, 16384)...) {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond) // nothing is waited for: this is how slow the server is
			}
		}},
		{"garbage", "does not look like a TLS handshake", func(conn net.Conn) { _, _ = conn.Write([]byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 100))) }},
		{"nothing", "EOF", func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }},
		{"another protocol", "no application protocol", func(conn net.Conn) {
			_ = tls.Server(conn, &tls.Config{Certificates: cert, NextProtos: []string{"spdy"}}).Handshake()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit := time.Minute
			if tt.want == "deadline exceeded" {
				limit = 200 * time.Millisecond
			}
			if _, err := connectWithin(t, limit, c, "", tt.server); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestServersWithoutALPN: servers that do not negotiate a protocol are accepted, as by grpc-go's
// xDS credentials, unless GRPC_ENFORCE_ALPN_ENABLED is true.
func TestServersWithoutALPN(t *testing.T) {
	ca, c := trusting(t)
	server := func(conn net.Conn) {
		s := tls.Server(conn, certified(ca, tlstest.Names{}))
		if s.Handshake() == nil {
			_, _ = s.Read(make([]byte, 1))
		}
	}
	for value, want := range map[string]string{"": "", "false": "", "True": "GRPC_ENFORCE_ALPN_ENABLED is true"} {
		t.Setenv("GRPC_ENFORCE_ALPN_ENABLED", value)
		if _, err := connect(t, c, "", server); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("GRPC_ENFORCE_ALPN_ENABLED=%s: error %v, want %q", value, err, want)
		}
	}
}

// TestPostQuantum (A120): the key exchange is X25519MLKEM768 if the server supports it.
func TestPostQuantum(t *testing.T) {
	ca, c := trusting(t)
	for want, curves := range map[tls.CurveID][]tls.CurveID{tls.X25519MLKEM768: nil, tls.CurveP256: {tls.CurveP256}} {
		config := certified(ca, tlstest.Names{})
		config.CurvePreferences = curves
		info, err := connect(t, c, "", serving(config))
		if err != nil || info.State.CurveID != want {
			t.Errorf("key exchange of a server with %v is %v, want %v: %v", curves, info.State.CurveID, want, err)
		}
	}
}

// TestSlowMatchers (T-SEC-2): the evaluation of SAN matchers ends soon after the handshake's
// deadline, and soon after the cluster's settings have changed. Names of more than 2 KiB match
// nothing.
func TestSlowMatchers(t *testing.T) {
	ca, c := trusting(t)
	server := certified(ca, tlstest.Names{URIs: []string{"spiffe://td.example/" + strings.Repeat("x", 200)}})
	slow := &picker.TLS{Roots: picker.CertInstance{Instance: "files"}}
	re := regexp.MustCompile("^(?:(?:" + strings.Repeat(".?", 200) + "){50}y)$")
	for range 100_000 { // half an hour
		slow.SANs = append(slow.SANs, picker.StringMatch{Kind: picker.MatchRegex, Regex: re})
	}
	c.Update(slow)
	_, err := connectWithin(t, 300*time.Millisecond, c, "", serving(server))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { c.Update(&picker.TLS{Roots: slow.Roots}) })
	if _, err := connect(t, c, "", serving(server)); !errors.Is(err, errStale) {
		t.Errorf("after a correction of the cluster: %v", err)
	}

	long := "spiffe://td.example/" + strings.Repeat("x", maxName)
	c.Update(&picker.TLS{Roots: slow.Roots, SANs: []picker.StringMatch{{Kind: picker.MatchPrefix, Value: "spiffe://"}}})
	for name, want := range map[string]bool{long: false, long[:maxName]: true} {
		if _, err := connect(t, c, "", serving(certified(ca, tlstest.Names{URIs: []string{name}}))); (err == nil) != want {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
	}
}

// TestLongErrors (T-SEC-2): a certificate with many long names does not make the error
// long.
func TestLongErrors(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("%d-%s.example", i, strings.Repeat("x", 150)))
	}
	leaf := ca.Issue(tlstest.Names{DNS: names}).TLS.Leaf
	for _, sans := range [][]picker.StringMatch{exact("a"), exact(names[1:]...)} {
		leaf.DNSNames = names
		if len(sans) > 1 {
			leaf.DNSNames = names[:1]
		}
		s := &settings{TLS: picker.TLS{SANs: sans}, roots: &material{}}
		err := s.verify(t.Context(), []*x509.Certificate{leaf}, bootstrap.Roots{Pool: ca.Pool()}, "", func() error { return nil })
		if err == nil || len(err.Error()) > 4000 {
			t.Errorf("error of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

// TestAddressesCostNothing checks that addresses of channels without xDS credentials share
// their attributes, so that a connection to a cluster without TLS has no additional cost.
func TestAddressesCostNothing(t *testing.T) {
	c := NewCluster("c", nil, true)
	defer c.Close()
	var addr resolver.Address
	if n := testing.AllocsPerRun(10000, func() { addr.Attributes = nil; c.Secure(&addr, nil) }); n != 0 || addr.Attributes != c.plain {
		t.Errorf("%v allocations for an address", n)
	}
	first := c.current.Load()
	c.Update(&picker.TLS{SystemRoots: true})
	same := c.current.Load()
	c.Update(&picker.TLS{SystemRoots: true})
	if first != nil || same == nil || c.current.Load() != same {
		t.Error("an unchanged update replaces the settings")
	}
}
