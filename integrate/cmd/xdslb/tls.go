// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
)

// tlsFlags configure TLS to a running process.
type tlsFlags struct {
	on                        bool
	ca, cert, key, serverName string
}

func (t *tlsFlags) register(fs *flag.FlagSet) {
	fs.BoolVar(&t.on, "tls", false, "use TLS; implied by -ca, -cert, -key and -server-name")
	fs.StringVar(&t.ca, "ca", "", "`file` with root certificates (default: those of the system)")
	fs.StringVar(&t.cert, "cert", "", "`file` with the client certificate chain; requires -key")
	fs.StringVar(&t.key, "key", "", "`file` with the private key of the client certificate")
	fs.StringVar(&t.serverName, "server-name", "", "`name` in the server certificate (default: the host of ADDR)")
}

// config reads the files and returns the settings, or nil without TLS.
func (t *tlsFlags) config() (*tls.Config, error) {
	if *t == (tlsFlags{}) {
		return nil, nil
	}
	if (t.cert == "") != (t.key == "") {
		return nil, usageError("-cert and -key must be used together")
	}
	c := &tls.Config{ServerName: t.serverName}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("-ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-ca: %s: no certificate in PEM format", t.ca)
		}
	}
	if t.cert != "" {
		own, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("-cert %s, -key %s: %w", t.cert, t.key, err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}
