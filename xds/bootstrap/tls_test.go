// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
)

// An authority issues certificates.
type certAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(t testing.TB, name string) *certAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	kit.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	kit.Must(t, err)
	return &certAuthority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate for localhost and its key in PEM format.
func (ca *certAuthority) issue(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, k.Public(), ca.key)
	kit.Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	kit.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// serve starts a TLS server with a certificate of ca, and returns its target. It requests
// client certificates of clients unless that is nil.
func serve(t *testing.T, ca, clients *certAuthority, onCall func(context.Context)) string {
	t.Helper()
	identity, err := tls.X509KeyPair(ca.issue(t, "server"))
	kit.Must(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{identity}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AddCert(clients.cert)
	}
	lis, err := net.Listen("tcp", "localhost:0")
	kit.Must(t, err)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if onCall != nil {
				onCall(ctx)
			}
			return h(ctx, req)
		}))
	healthpb.RegisterHealthServer(s, health.NewServer())
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return fmt.Sprintf("localhost:%d", lis.Addr().(*net.TCPAddr).Port)
}

// call makes one call on a new channel to the server.
func call(t *testing.T, s *Server) error {
	t.Helper()
	opts, stop, err := s.DialOptions()
	kit.Must(t, err)
	defer stop()
	return callWith(t, s.URI, opts)
}

func callWith(t *testing.T, target string, opts []grpc.DialOption) error {
	t.Helper()
	cc, err := grpc.NewClient(target, opts...)
	kit.Must(t, err)
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err = healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	kit.Must(t, os.WriteFile(name, data, 0o600))
}

// tlsServer is a server of a bootstrap with the given tls configuration.
func tlsServer(t testing.TB, uri, config, rest string) *Server {
	t.Helper()
	c, err := Parser{}.Parse("test", fmt.Appendf(nil, `{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "tls", "config": %s}]%s}]}`, uri, config, rest))
	kit.Must(t, err)
	return c.Servers[0]
}

// A65: TLS by a CA file, by the system's roots, and with an identity.
func TestTLS(t *testing.T) {
	ca, other := newCA(t, "ca"), newCA(t, "other")
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	otherFile, noPEM := filepath.Join(dir, "other.pem"), filepath.Join(dir, "no.pem")
	cert, key := ca.issue(t, "client")
	write(t, caFile, ca.pem)
	write(t, otherFile, other.pem)
	write(t, certFile, cert)
	write(t, keyFile, key)
	write(t, noPEM, []byte("no PEM"))
	plain, mutual := serve(t, ca, nil, nil), serve(t, ca, ca, nil)
	config := func(ca, cert, key string) string {
		return fmt.Sprintf(`{"ca_certificate_file": %q, "certificate_file": %q, "private_key_file": %q}`, ca, cert, key)
	}
	for _, tt := range []struct {
		name, uri, config string
		err               string // part of it; the server decides about mutual TLS
	}{
		{"TLS", plain, config(caFile, "", ""), ""},
		{"TLS with identity", plain, config(caFile, certFile, keyFile), ""},
		{"mutual TLS", mutual, config(caFile, certFile, keyFile), ""},
		{"no identity", mutual, config(caFile, "", ""), "error"},
		{"system roots", plain, `{}`, "certificate"},
		{"another CA", plain, config(otherFile, "", ""), "certificate"},
		{"missing CA", plain, config(filepath.Join(dir, "missing.pem"), "", ""), "missing.pem"},
		{"no CA", plain, config(noPEM, "", ""), "no.pem: no certificate in PEM format"},
		{"missing key", mutual, config(caFile, certFile, filepath.Join(dir, "missing.pem")), "missing.pem"},
		{"wrong key", mutual, config(caFile, certFile, noPEM), "no.pem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := call(t, tlsServer(t, tt.uri, tt.config, ""))
			if tt.err == "" {
				if err != nil {
					t.Errorf("call failed: %v", err)
				}
			} else if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("call returned %v, want UNAVAILABLE with %q", err, tt.err)
			}
		})
	}
}

// A65: the next handshake after refresh_interval uses the new files, on the
// channel that exists.
func TestTLSReload(t *testing.T) {
	before, after := newCA(t, "before"), newCA(t, "after")
	old, renewed := serve(t, before, before, nil), serve(t, after, after, nil)
	dir := t.TempDir()
	install := func(ca *certAuthority) {
		cert, key := ca.issue(t, "client")
		write(t, filepath.Join(dir, "ca.pem"), ca.pem)
		write(t, filepath.Join(dir, "cert.pem"), cert)
		write(t, filepath.Join(dir, "key.pem"), key)
	}
	s := tlsServer(t, "unused", fmt.Sprintf(`{"ca_certificate_file": "%s/ca.pem", "certificate_file": "%[1]s/cert.pem", "private_key_file": "%[1]s/key.pem", "refresh_interval": "0.000000001s"}`, dir), "")
	opts, stop, err := s.DialOptions()
	kit.Must(t, err)
	defer stop()
	install(before)
	if err := callWith(t, old, opts); err != nil {
		t.Errorf("old files, old server: %v", err)
	}
	if err := callWith(t, renewed, opts); err == nil {
		t.Error("old files, new server: call succeeded")
	}
	install(after)
	if err := callWith(t, renewed, opts); err != nil {
		t.Errorf("new files, new server: %v", err)
	}
	// A file that is being replaced does not cost the connection.
	write(t, filepath.Join(dir, "key.pem"), nil)
	if err := callWith(t, renewed, opts); err != nil {
		t.Errorf("half-written files: %v", err)
	}
}

// A29, A65: files are read once per interval, and the previous contents are kept while they are
// unreadable.
func TestCertLoader(t *testing.T) {
	first, second := newCA(t, "first"), newCA(t, "second")
	file := filepath.Join(t.TempDir(), "ca.pem")
	synctest.Test(t, func(t *testing.T) {
		l := NewCertLoader(CertFiles{CACertificateFile: file, RefreshInterval: time.Minute})
		var lines bytes.Buffer
		l.LogTo(nil)
		l.LogTo(slog.New(slog.NewTextHandler(&lines, nil)))
		l.LogTo(slog.New(slog.DiscardHandler)) // the first counts
		load := func(want *certAuthority) {
			t.Helper()
			certs, err := l.load(t.Context())
			kit.Must(t, err)
			pool := x509.NewCertPool()
			pool.AddCert(want.cert)
			if !certs.Roots.Pool.Equal(pool) {
				t.Errorf("roots are not %v", want.cert.Subject)
			}
		}
		if _, err := l.load(t.Context()); !os.IsNotExist(unwrapped(err)) || !strings.Contains(err.Error(), file) {
			t.Errorf("before there is a file: %v", err)
		}
		write(t, file, first.pem)
		load(first)
		write(t, file, second.pem)
		<-time.After(time.Minute - 1)
		load(first)
		<-time.After(1)
		load(second)
		kit.Must(t, os.Remove(file))
		<-time.After(time.Hour)
		load(second)
		load(second)
		synctest.Wait()
		if got := lines.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, file) {
			t.Errorf("the log is %q, want one warning about %s", got, file)
		}
		write(t, file, first.pem)
		load(first) // not a minute later
		synctest.Wait()
		if got := lines.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "level=INFO") != 1 || !strings.Contains(got, "can be read again") {
			t.Errorf("the log is %q, want a line that the files can be read again", got)
		}
	})
}

// TestLogTo: all that read files on behalf of a configuration write to the first Logger.
func TestLogTo(t *testing.T) {
	c, err := Parser{}.Parse("test", []byte(`{
		"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "x"}}]}],
		"authorities": {"b": {"xds_servers": [{"server_uri": "b", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "y"}}]}]}},
		"certificate_providers": {"p": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "z"}}, "q": {"plugin_name": "other"}}
	}`))
	kit.Must(t, err)
	first := slog.New(slog.DiscardHandler)
	c.LogTo(nil)
	c.LogTo(first)
	c.LogTo(slog.Default())
	loaders := []*CertLoader{c.CertProviders["p"].Files}
	for _, s := range []*Server{c.Servers[0], c.Authorities["b"].Servers[0]} {
		b, _, err := s.bundle()
		kit.Must(t, err)
		loaders = append(loaders, b.(tlsBundle).certs)
	}
	for _, l := range loaders {
		if l.logger.Load() != first {
			t.Errorf("lines about %+v go elsewhere", l.Files())
		}
	}
}

func unwrapped(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, ok := err.(*os.PathError); ok {
			return err
		}
		err = u.Unwrap()
	}
}

// A97: the token travels with each call, over TLS.
func TestJWT(t *testing.T) {
	ca := newCA(t, "ca")
	dir := t.TempDir()
	caFile, tokenFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	write(t, caFile, ca.pem)
	var got []string
	target := serve(t, ca, nil, func(ctx context.Context) {
		md, _ := metadata.FromIncomingContext(ctx)
		got = md.Get("authorization")
	})
	s := tlsServer(t, target, fmt.Sprintf(`{"ca_certificate_file": %q}`, caFile),
		fmt.Sprintf(`, "call_creds": [{"type": "future"}, {"type": "jwt_token_file", "config": {"jwt_token_file": %q}}]`, tokenFile))
	if err := call(t, s); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), tokenFile) {
		t.Errorf("without a token file: %v, want UNAVAILABLE that names it", err)
	}
	write(t, tokenFile, []byte("no token"))
	if err := call(t, s); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with a broken token: %v, want UNAUTHENTICATED", err)
	}
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp": %d}`, time.Now().Add(time.Hour).Unix()))
	token := "header." + claims + ".signature"
	write(t, tokenFile, []byte(token+"\n"))
	if err := call(t, s); err != nil {
		t.Errorf("with a token: %v", err)
	}
	if len(got) != 1 || got[0] != "Bearer "+token {
		t.Errorf("the server got authorization %q, want Bearer %s", got, token)
	}
}

// The other methods of the interface return errors.
func TestTLSCredsRefuse(t *testing.T) {
	bundle, _, err := tlsBuilder{}.Build(nil)
	kit.Must(t, err)
	c := bundle.TransportCredentials()
	if got := c.Info().SecurityProtocol; got != "tls" {
		t.Errorf("protocol %q, want tls", got)
	}
	if _, _, err := c.Clone().ServerHandshake(nil); err == nil {
		t.Error("ServerHandshake succeeded")
	}
	if bundle.PerRPCCredentials() != nil {
		t.Error("there are call credentials")
	}
}

// TestBundleMap (A87): roots by trust domain, and invalid bundle maps.
func TestBundleMap(t *testing.T) {
	block, _ := pem.Decode(newCA(t, "ca").pem)
	cert := base64.StdEncoding.EncodeToString(block.Bytes)
	for _, tt := range []struct{ text, want string }{
		{`{"trust_domains": {"a.example": {"keys": [{"use": "x509-svid", "x5c": ["` + cert + `"]}, {"use": "jwt-svid"}, {}]}, "b.example": {"keys": null}}}`, ""},
		{`{"trust_domains": {"a": {"spiffe_sequence": 1, "spiffe_refresh_hint": 2, "keys": [], "x": {}}}}`, ""},
		{``, "is not a SPIFFE bundle map"},
		{`[]`, "is not a SPIFFE bundle map"},
		{`{}`, `has no "trust_domains"`},
		{`{"trust_domains": {"A": {}}}`, `"A" is not a valid trust domain name`},
		{`{"trust_domains": {"a/b": {}}}`, `"a/b" is not a valid trust domain name`},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid"}]}}}`, "keys[0].x5c must be one certificate, not 0"},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["` + cert + `", "` + cert + `"]}]}}}`, "must be one certificate, not 2"},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["AAAA"]}]}}}`, `trust domain "a": keys[0].x5c: x509`},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["%"]}]}}}`, "is not a SPIFFE bundle map"},
	} {
		pools, err := parseBundleMap([]byte(tt.text))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || err == nil && len(pools) == 0 {
			t.Errorf("%.60s: %v, %v, want %q", tt.text, pools, err, tt.want)
		}
	}
}

// TestCheckCertProvider (A29) checks which instances clusters may use, and for which purpose. A
// plugin that the program lacks is not an error of the bootstrap until a cluster uses it.
func TestCheckCertProvider(t *testing.T) {
	p := testParser()
	p.CertPlugin = func(name string, config json.RawMessage) error {
		if name != "vault" {
			return errors.New("there is no such plugin")
		}
		if string(config) != `{"x":1}` {
			return fmt.Errorf("cannot use %s", config)
		}
		return nil
	}
	const text = `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}]}], "certificate_providers": {
		"all": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "a", "certificate_file": "b", "private_key_file": "c"}},
		"identity": {"plugin_name": "file_watcher", "config": {"certificate_file": "b", "private_key_file": "c"}},
		"roots": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "a"}},
		"domains": {"plugin_name": "file_watcher", "config": {"spiffe_trust_bundle_map_file": "a"}},
		"vault": {"plugin_name": "vault", "config": {"x": 1}},
		"wrong": {"plugin_name": "vault", "config": {"x": 2}},
		"alien": {"plugin_name": "alien"}}}`
	c, err := p.Parse("test", []byte(text))
	kit.Must(t, err)
	for instance, want := range map[string][2]string{ // for an identity, for roots
		"all": {}, "vault": {},
		"identity": {"", "ca_certificate_file or spiffe_trust_bundle_map_file"},
		"roots":    {}, // the client shows no certificate
		"domains":  {},
		"wrong":    {`plugin "vault" is not registered in the client, or rejects its configuration`, `plugin "vault" is not registered`},
		"alien":    {`plugin "alien" is not registered in the client`, `plugin "alien" is not registered`},
		"gone":     {`identity certificate provider instance name "gone" missing in bootstrap configuration`, `root certificate provider instance name "gone" missing in bootstrap configuration`},
	} {
		for i, want := range want {
			if err := c.CheckCertProvider(instance, i == 1); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, roots %v: %v, want %q", instance, i == 1, err, want)
			}
		}
	}
	if c, err = (Parser{}.Parse("test", []byte(text))); err != nil || c.CheckCertProvider("vault", true) == nil {
		t.Errorf("without plugins: %v", err)
	}
}
