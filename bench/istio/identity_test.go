// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/xdslb/xdslb/bench/kit"
)

// An authority issues certificates.
type authority struct {
	t    testing.TB
	root issued
}

// issued is a certificate with its key.
type issued struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	a.root = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign completes and signs a certificate; the first one by itself.
func (a *authority) sign(cert *x509.Certificate) issued {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert.SerialNumber = big.NewInt(time.Now().UnixNano())
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := a.root
	if parent.cert == nil {
		parent = issued{cert, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent.cert, key.Public(), parent.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	return issued{cert, key}
}

// identity returns the SPIFFE ID of a service account.
func identity(account string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/" + account}
}

// workload issues the certificate of a service account.
func (a *authority) workload(account string) issued {
	a.t.Helper()
	return a.sign(&x509.Certificate{URIs: []*url.URL{identity(account)}})
}

// controlPlane issues the certificate of a control plane on loopback.
func (a *authority) controlPlane() issued {
	a.t.Helper()
	return a.sign(&x509.Certificate{DNSNames: []string{"istiod.istio-system.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// write writes the root certificate, and a certificate and its key, under the names that the agent
// uses, to the folder certs of a mesh.
func (a *authority) write(m *mesh, c issued) {
	a.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"root-cert.pem":  {Type: "CERTIFICATE", Bytes: a.root.cert.Raw},
		"cert-chain.pem": {Type: "CERTIFICATE", Bytes: c.cert.Raw},
		"key.pem":        {Type: "PRIVATE KEY", Bytes: der},
	} {
		m.write("certs/"+name, string(pem.EncodeToMemory(block)))
	}
}

// server makes backends run as a service account and require mutual TLS.
func (a *authority) server(account string) grpc.ServerOption {
	a.t.Helper()
	c := a.workload(account)
	roots := x509.NewCertPool()
	roots.AddCert(a.root.cert)
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.cert.Raw}, PrivateKey: c.key}},
		ClientCAs:    roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}))
}

// An issuer issues tokens of service accounts, and serves its public key.
type issuer struct {
	t   testing.TB
	key *rsa.PrivateKey
	url string // of the key set
}

const audience = "istio-ca"

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.Must(t, err)
	keys := encode(t, map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "e": "AQAB",
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
	}}})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(keys) }))
	t.Cleanup(s.Close)
	return &issuer{t, key, s.URL}
}

// rule returns the value of the control plane's variable JWT_RULE.
func (i *issuer) rule() string {
	return string(encode(i.t, map[string]any{"issuer": i.url, "jwks_uri": i.url, "audiences": []string{audience}}))
}

// token returns a token of a service account.
func (i *issuer) token(account string) string {
	i.t.Helper()
	part := func(v any) string { return base64.RawURLEncoding.EncodeToString(encode(i.t, v)) }
	text := part(map[string]string{"alg": "RS256", "typ": "JWT", "kid": "1"}) + "." + part(map[string]any{
		"iss": i.url, "aud": []string{audience}, "sub": "system:serviceaccount:" + namespace + ":" + account,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		i.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	kit.Must(t, err)
	return data
}
