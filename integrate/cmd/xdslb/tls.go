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

// tlsFlags are how a process is asked by TLS.
type tlsFlags struct {
	on                        bool
	ca, cert, key, serverName string
}

func (t *tlsFlags) register(fs *flag.FlagSet) {
	fs.BoolVar(&t.on, "tls", false, "ask by TLS; any of the next four means that, too")
	fs.StringVar(&t.ca, "ca", "", "`file` with the roots of the server's certificate; else the system's")
	fs.StringVar(&t.cert, "cert", "", "`file` with the own certificate and what leads to its root, with -key")
	fs.StringVar(&t.key, "key", "", "`file` with the own certificate's private key")
	fs.StringVar(&t.serverName, "server-name", "", "`name` in the server's certificate; else that of ADDR")
}

// config returns the settings by the files as they are now, or nil if there is to be no TLS.
func (t *tlsFlags) config() (*tls.Config, error) {
	if *t == (tlsFlags{}) {
		return nil, nil
	}
	if (t.cert == "") != (t.key == "") {
		return nil, usageError("-cert and -key go together")
	}
	c := &tls.Config{ServerName: t.serverName}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("-ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-ca: %s has no certificate in PEM", t.ca)
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
