// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/debug"
)

// remote is a process to query.
type remote struct {
	at      string
	timeout time.Duration
	tls     tlsFlags
}

// page returns the URL of the debug page.
func (p *remote) page() (*url.URL, error) {
	at := p.at
	secure := p.tls != tlsFlags{}
	switch {
	case strings.Contains(at, "://"):
	case secure:
		at = "https://" + at
	default:
		at = "http://" + at
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, usageError(err.Error())
	}
	if secure && u.Scheme != "https" {
		return nil, usageError(fmt.Sprintf("%s: TLS flags require the scheme https", u.Redacted()))
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/debug/xdslb/"
	}
	return u, nil
}

// maxAnswer is the maximum length of a response.
const maxAnswer = 1 << 30

// get requests the debug page.
func (p *remote) get(ctx context.Context, q url.Values) ([]byte, error) {
	u, err := p.page()
	if err != nil {
		return nil, err
	}
	u.RawQuery = q.Encode()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	secure, err := p.tls.config()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		var said struct{ Error string }
		if json.Unmarshal(text, &said) == nil && said.Error != "" {
			return nil, errors.New(said.Error)
		}
		return nil, fmt.Errorf("%s: status %s without the JSON of a debug page: check that the process serves package integrate/debug there", u.Redacted(), resp.Status)
	}
	return text, nil
}

// document requests the channels. params are further parameters and their values.
func (p *remote) document(ctx context.Context, params ...string) (*debug.Document, error) {
	q := url.Values{"format": {"json"}}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	text, err := p.get(ctx, q)
	if err != nil {
		return nil, err
	}
	d := new(debug.Document)
	return d, json.Unmarshal(text, d)
}

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
