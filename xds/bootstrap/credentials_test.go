// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
)

// A27-BOOT-4: the first supported type wins, and later ones are not looked at.
// A27-BOOT-6: its config reaches the builder as it is.
func TestFirstSupportedChannelCreds(t *testing.T) {
	fakes := map[string]*fakeChannel{"one": {}, "two": {}}
	p := Parser{ChannelCreds: func(name string) ChannelBuilder {
		if f := fakes[name]; f != nil {
			return f
		}
		return nil
	}}
	for _, tt := range []struct{ creds, want, config string }{
		{`[{"type": "unknown"}, {"type": "insecure"}, {"type": "google_default"}]`, "insecure", ""},
		{`[{"type": "one", "config": {"b": [1.50], "a": "<"}}, {"type": "insecure"}]`, "one", `{"a":"<","b":[1.50]}`},
		{`[{"type": "unknown", "config": 1}, {"type": "two", "config": null}, {"type": "one"}]`, "two", ""},
		{`[{"type": "two", "config": 7}, {"type": "tls", "config": "not looked at"}]`, "two", "7"},
	} {
		c, err := p.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": `+tt.creds+`}]}`))
		if err != nil {
			t.Errorf("%s: %v", tt.creds, err)
			continue
		}
		if got := c.Servers[0].channelCreds.name; got != tt.want {
			t.Errorf("%s selects %s, want %s", tt.creds, got, tt.want)
		}
		if f := fakes[tt.want]; f != nil && string(f.config) != tt.config {
			t.Errorf("%s: the builder got %s, want %s", tt.creds, f.config, tt.config)
		}
	}
}

// Credentials that are built are stopped: credentials of the check immediately, credentials of
// a channel when its user calls stop.
func TestCredentialsLifeCycle(t *testing.T) {
	channel, call := &fakeChannel{secure: true}, &fakeCall{secure: true}
	p := Parser{
		ChannelCreds: func(string) ChannelBuilder { return channel },
		CallCreds:    func(string) CallBuilder { return call },
	}
	parse := func(name string) *Server {
		t.Helper()
		c, err := p.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "`+name+`"}], "call_creds": [{"type": "x"}, {"type": "y"}]}]}`))
		kit.Must(t, err)
		return c.Servers[0]
	}
	check := func(when string, built, calls int) {
		t.Helper()
		if channel.built != built || channel.stopped != built || call.built != calls || call.stopped != calls {
			t.Errorf("%s: %d of %d channel and %d of %d call credentials are stopped, want %d and %d",
				when, channel.stopped, channel.built, call.stopped, call.built, built, calls)
		}
	}
	s := parse("fake")
	check("parsed", 1, 2)

	opts, stop, err := s.DialOptions()
	kit.Must(t, err)
	// The bundle, its option, and two call credentials (A97: all).
	if len(opts) != 4 {
		t.Errorf("%d dial options, want 4", len(opts))
	}
	if channel.built != 2 || channel.stopped != 1 {
		t.Errorf("in use: %d built, %d stopped", channel.built, channel.stopped)
	}
	stop()
	check("stopped", 2, 4)

	// Looking for Google's credentials takes the network, so it is put off.
	s = parse(googleDefault)
	check("google_default parsed", 2, 6)
	if _, stop, err = s.DialOptions(); err != nil {
		t.Fatal(err)
	}
	stop()
	check("google_default stopped", 3, 8)

	call.err = errors.New("no more")
	if _, _, err := s.DialOptions(); !errors.Is(err, call.err) {
		t.Errorf("error %v, want %v", err, call.err)
	}
	check("failed call credentials", 4, 8)
	channel.err = errors.New("no more")
	if _, _, err := s.DialOptions(); !errors.Is(err, channel.err) {
		t.Errorf("error %v, want %v", err, channel.err)
	}
	check("failed channel credentials", 4, 8)
}

// A builder that returns neither credentials nor an error is an error when it
// matters, and no panic before.
func TestBuilderOfNothing(t *testing.T) {
	p := Parser{ChannelCreds: func(string) ChannelBuilder { return &fakeChannel{none: true} }}
	c, err := p.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "none"}]}]}`))
	kit.Must(t, err)
	if _, _, err := c.Servers[0].DialOptions(); err == nil {
		t.Error("DialOptions succeeded without credentials")
	}
}

// A97: call credentials that need a secure channel are rejected for plaintext channels, of
// every type; others are accepted.
func TestCallCredsNeedSecurity(t *testing.T) {
	for _, tt := range []struct {
		channel, call bool // secure, needs security
		ok            bool
	}{
		{false, false, true}, {true, false, true}, {true, true, true}, {false, true, false},
	} {
		p := Parser{
			ChannelCreds: func(string) ChannelBuilder { return &fakeChannel{secure: tt.channel} },
			CallCreds:    func(string) CallBuilder { return &fakeCall{secure: tt.call} },
		}
		_, err := p.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "x"}], "call_creds": [{"type": "y"}]}]}`))
		if (err == nil) != tt.ok {
			t.Errorf("%+v: error %v", tt, err)
		}
		var e *parseError
		if errors.As(err, &e) && e.Path != "$.xds_servers[0].call_creds[0].type" {
			t.Errorf("%+v: error at %s", tt, e.Path)
		}
	}
}

// A fakeChannel builds plain-text credentials under another name, or fails, and
// counts.
type fakeChannel struct {
	err            error
	none           bool // return no credentials
	secure         bool // claim to be secure
	built, stopped int
	config         json.RawMessage // of the last Build
}

func (f *fakeChannel) Build(config json.RawMessage) (credentials.Bundle, func(), error) {
	f.config = config
	if f.err != nil {
		return nil, nil, f.err
	}
	if f.none {
		return nil, nil, nil
	}
	f.built++
	return fakeBundle{insecure.NewBundle(), f.secure}, func() { f.stopped++ }, nil
}

type fakeBundle struct {
	credentials.Bundle
	secure bool
}

func (b fakeBundle) TransportCredentials() credentials.TransportCredentials {
	if b.secure {
		return credentials.NewTLS(nil)
	}
	return b.Bundle.TransportCredentials()
}

// DialOptions sets a user agent, as an example of a bundle's options.
func (fakeBundle) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUserAgent("bundle")}
}

// A fakeCall builds call credentials, or fails, and counts.
type fakeCall struct {
	err            error
	secure         bool // require transport security
	built, stopped int
}

func (f *fakeCall) Build(json.RawMessage) (credentials.PerRPCCredentials, func(), error) {
	if f.err != nil {
		return nil, nil, f.err
	}
	f.built++
	return f, func() { f.stopped++ }, nil
}

func (f *fakeCall) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"x-fake": "yes"}, nil
}

func (f *fakeCall) RequireTransportSecurity() bool { return f.secure }

// TestHalfWritten checks that partially written files, truncated at any byte, count as
// unreadable. Half of a list of roots, or of a chain, would stay for as long as
// RefreshInterval.
func TestHalfWritten(t *testing.T) {
	first, second := newCA(t, "first"), newCA(t, "second")
	cert, key := second.issue(t, "client")
	dir := t.TempDir()
	files := CertFiles{
		CACertificateFile: filepath.Join(dir, "ca.pem"), CertificateFile: filepath.Join(dir, "cert.pem"), PrivateKeyFile: filepath.Join(dir, "key.pem"),
		RefreshInterval: time.Nanosecond,
	}
	roots := slices.Concat([]byte("the first:\n"), first.pem, []byte("\nthe second:\n"), second.pem)
	chain := slices.Concat(cert, second.pem)
	write(t, files.PrivateKeyFile, key)
	begun := []byte("-----BEGIN CERTIFICATE")
	for n := range max(len(roots), len(chain)) {
		write(t, files.CACertificateFile, roots[:min(n, len(roots))])
		write(t, files.CertificateFile, chain[:min(n, len(chain))])
		certs, err := NewCertLoader(files).load(t.Context())
		if err != nil {
			continue
		}
		want := x509.NewCertPool()
		for _, ca := range []*certAuthority{first, second}[:bytes.Count(roots[:min(n, len(roots))], begun)] {
			want.AddCert(ca.cert)
		}
		if !certs.Roots.Pool.Equal(want) {
			t.Errorf("%d bytes of the roots, and not all are used that they begin", n)
		}
		if got, want := len(certs.Identity.Certificate), bytes.Count(chain[:min(n, len(chain))], begun); got != want {
			t.Errorf("%d bytes of the chain, and %d certificates of %d are used", n, got, want)
		}
	}
	l := NewCertLoader(files)
	write(t, files.CACertificateFile, roots)
	write(t, files.CertificateFile, chain)
	if _, err := l.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, files.CACertificateFile, roots[:len(roots)-40])
	write(t, files.CertificateFile, chain[:len(chain)-40])
	certs, err := l.load(t.Context())
	if err != nil || len(certs.Identity.Certificate) != 2 {
		t.Fatalf("%v: the previous contents are not kept", err)
	}
	_, err = NewCertLoader(files).LoadRoots(t.Context())
	want := fmt.Sprintf("%s: line %d: the PEM block is malformed, or the file ends within it", files.CACertificateFile, 4+bytes.Count(first.pem, []byte("\n")))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v", err)
	}
}

// TestPEMFiles: comments and byte order marks in PEM files do not count. Blocks that Go's parsers
// would skip are errors that name the line.
func TestPEMFiles(t *testing.T) {
	first, second := newCA(t, "first"), newCA(t, "second")
	a, b := string(first.pem), string(second.pem)
	lines := strings.Count(a, "\n")
	name := filepath.Join(t.TempDir(), "ca.pem")
	for _, tt := range []struct {
		text  string
		roots []*certAuthority
		err   string
	}{
		{a + b, []*certAuthority{first, second}, ""},
		{"\ufeff" + a + b, []*certAuthority{first, second}, ""},
		{"# paste below -----BEGIN CERTIFICATE----- here\n" + a, []*certAuthority{first}, ""},
		{strings.ReplaceAll(a, "\n", "\r\n") + b, []*certAuthority{first, second}, ""},
		{a + strings.TrimSpace(b), []*certAuthority{first, second}, ""},
		{"#\n" + strings.TrimSpace(a) + b, nil, "line 2: the PEM block is malformed: another one begins in it, possibly because a line break is missing"},
		{a + strings.TrimSpace(a) + b + a, nil, fmt.Sprintf("line %d: the PEM block is malformed: another", lines+1)},
		{a + "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n", nil, fmt.Sprintf("line %d: the PEM block is malformed", lines+1)},
		{"  " + strings.ReplaceAll(a, "\n", "\n  "), nil, ": no certificate in PEM format"},
		{a + strings.Repeat("\n", maxCertFile), nil, "is larger than 16 MiB"},
	} {
		write(t, name, []byte(tt.text))
		roots, err := NewCertLoader(CertFiles{CACertificateFile: name, RefreshInterval: time.Hour}).LoadRoots(t.Context())
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), name) {
				t.Errorf("%.80q: error %v, want %q", tt.text, err, tt.err)
			}
			continue
		}
		want := x509.NewCertPool()
		for _, ca := range tt.roots {
			want.AddCert(ca.cert)
		}
		if err != nil || !roots.Pool.Equal(want) {
			t.Errorf("%.80q: error %v, want %d roots", tt.text, err, len(tt.roots))
		}
	}
}
