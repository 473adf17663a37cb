// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/x509"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHalfWritten: files that are being written, at whatever byte, count as unreadable. Half of
// a list of roots, or of a chain, would stay for as long as RefreshInterval.
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
		certs, err := NewCertLoader(files).Load()
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
	if _, err := l.Load(); err != nil {
		t.Fatal(err)
	}
	write(t, files.CACertificateFile, roots[:len(roots)-40])
	write(t, files.CertificateFile, chain[:len(chain)-40])
	certs, err := l.Load()
	if err != nil || len(certs.Identity.Certificate) != 2 {
		t.Fatalf("%v: what was read before does not stay", err)
	}
	_, err = NewCertLoader(files).LoadRoots()
	if err == nil || !strings.Contains(err.Error(), files.CACertificateFile) || !strings.Contains(err.Error(), "ends within a certificate") {
		t.Errorf("the error is %v", err)
	}
}
