// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// parseBundleMap parses a SPIFFE bundle map (A87): for each trust domain a JWK set, whose
// entries for X.509 have one certificate each. It implements the certificate parts of the
// SPIFFE standard "SPIFFE Trust Domain and Bundle" (sections 4 and 5). The text is untrusted;
// errors quote only names from it.
func parseBundleMap(text []byte) (map[string]*x509.CertPool, error) {
	var doc struct {
		TrustDomains map[string]struct {
			Keys []struct {
				Use string   `json:"use"`
				X5C [][]byte `json:"x5c"` // base64, as in JWK
			} `json:"keys"`
		} `json:"trust_domains"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("is not a SPIFFE bundle map: %w", err)
	}
	if len(doc.TrustDomains) == 0 {
		return nil, errors.New(`has no "trust_domains"`)
	}
	pools := make(map[string]*x509.CertPool, len(doc.TrustDomains))
	for domain, bundle := range doc.TrustDomains {
		if !isTrustDomain(domain) {
			return nil, fmt.Errorf("%q is not a valid trust domain name", domain)
		}
		pool := x509.NewCertPool()
		for i, key := range bundle.Keys {
			if key.Use != "x509-svid" {
				continue
			}
			if len(key.X5C) != 1 {
				return nil, fmt.Errorf("trust domain %q: keys[%d].x5c must be one certificate, not %d", domain, i, len(key.X5C))
			}
			cert, err := x509.ParseCertificate(key.X5C[0])
			if err != nil {
				return nil, fmt.Errorf("trust domain %q: keys[%d].x5c: %w", domain, i, err)
			}
			pool.AddCert(cert)
		}
		pools[domain] = pool
	}
	return pools, nil
}

// trustDomain returns the trust domain of a certificate's SPIFFE ID: the certificate must have
// exactly one URI, which is a SPIFFE ID.
func trustDomain(cert *x509.Certificate) (string, error) {
	if n := len(cert.URIs); n != 1 {
		return "", fmt.Errorf("the certificate has %d URIs, want one, its SPIFFE ID", n)
	}
	if u := cert.URIs[0]; !IsSPIFFEID(u) {
		text := u.String()
		return "", fmt.Errorf("the certificate's URI %.200q is not a SPIFFE ID", text)
	}
	return cert.URIs[0].Host, nil
}

// IsSPIFFEID reports whether a URI has the form spiffe://<trust domain>/<path>, where the path
// is optional.
func IsSPIFFEID(u *url.URL) bool {
	if u.Scheme != "spiffe" || !isTrustDomain(u.Host) || u.User != nil || u.Opaque != "" || len(u.String()) > 2048 ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" {
		return false
	}
	if u.Path == "" {
		return true
	}
	for segment := range strings.SplitSeq(u.Path[1:], "/") {
		if segment == "" || segment == "." || segment == ".." || !consistsOf(segment, func(c byte) bool {
			return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
		}) {
			return false
		}
	}
	return true
}

func isTrustDomain(name string) bool {
	return name != "" && len(name) <= 255 && consistsOf(name, func(c byte) bool {
		return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
	})
}

func consistsOf(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
