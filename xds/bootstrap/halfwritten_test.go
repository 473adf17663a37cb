// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

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
