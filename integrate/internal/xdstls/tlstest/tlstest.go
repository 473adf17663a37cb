// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package tlstest provides certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A CA issues certificates.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// NewCA returns a CA with the given name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{t: t, cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Pool returns a pool with only the CA's certificate.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// BundleMap returns a SPIFFE bundle map with the CA as the only root of a trust domain.
func (c *CA) BundleMap(trustDomain string) []byte {
	type m = map[string]any
	text, err := json.Marshal(m{"trust_domains": m{trustDomain: m{"spiffe_sequence": 1, "keys": []m{
		{"kty": "EC", "use": "jwt-svid", "kid": "k"},
		{"kty": "EC", "use": "x509-svid", "x5c": []string{base64.StdEncoding.EncodeToString(c.cert.Raw)}},
	}}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// Names are the names in a certificate; it is valid from an hour ago for two hours unless set
// otherwise.
type Names struct {
	DNS, URIs, Emails, IPs []string
	From, To               time.Time
}

// A Pair is a certificate and its key.
type Pair struct {
	TLS       tls.Certificate
	Cert, Key []byte // PEM
}

// Issue returns a certificate for servers and clients.
func (c *CA) Issue(n Names) Pair {
	c.t.Helper()
	key := newKey(c.t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "leaf"},
		NotBefore: n.From, NotAfter: n.To, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    n.DNS, EmailAddresses: n.Emails,
	}
	if n.From.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if n.To.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	for _, text := range n.URIs {
		u, err := url.Parse(text)
		if err != nil {
			c.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	for _, text := range n.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(text))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	p := Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}
	if p.TLS, err = tls.X509KeyPair(p.Cert, p.Key); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// Files are the files of a file_watcher, in their own directory.
type Files struct{ Dir, Cert, Key, CA, Bundles string }

// NewFiles returns names of files that do not exist yet.
func NewFiles(t testing.TB) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{dir, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "bundles.json")}
}

// Write replaces a file atomically, as certificate writers do.
func Write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}
