// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/jwt"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A ChannelBuilder builds channel credentials of one type. The builders of
// package google.golang.org/grpc/xds/bootstrap are ChannelBuilders.
type ChannelBuilder interface {
	// Build returns credentials for one channel and a function, which may be nil, to call when
	// they are no longer used. config is the "config" member of the channel_creds entry, nil if
	// absent. An error means that config is invalid.
	Build(config json.RawMessage) (credentials.Bundle, func(), error)
}

// A CallBuilder is a ChannelBuilder for call credentials.
type CallBuilder interface {
	Build(config json.RawMessage) (credentials.PerRPCCredentials, func(), error)
}

// creds is a selected entry of channel_creds or call_creds.
type creds[Builder any] struct {
	name    string
	config  json.RawMessage // canonical; nil if absent
	builder Builder
	builtin bool // config is known to contain no secrets
}

func (c creds[Builder]) document(discreet bool) credsDoc {
	if discreet && !c.builtin {
		return credsDoc{Type: c.name}
	}
	return credsDoc{c.name, c.config}
}

// googleDefault is the only type from outside this package that is not built while parsing: it
// has no configuration that could be invalid, and searching for Google's application default
// credentials can take a network round trip.
const googleDefault = "google_default"

// DialOptions returns the options with which grpc.NewClient connects to the server at s.URI:
// transport and call credentials, and the options of the credentials bundle. The caller must
// call stop once the channel is closed. Each call builds new credentials.
func (s *Server) DialOptions() (opts []grpc.DialOption, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	bundle, f, err := s.bundle()
	if err != nil {
		return nil, nil, err
	}
	stops = appendFunc(stops, f)
	opts = append(opts, grpc.WithCredentialsBundle(bundle))
	// A convention of grpc's own xDS client, for bundles that need other channel options in
	// addition to credentials.
	if b, ok := bundle.(interface{ DialOptions() []grpc.DialOption }); ok {
		opts = append(opts, b.DialOptions()...)
	}
	for _, c := range s.callCreds {
		perRPC, f, err := c.builder.Build(c.config)
		if err == nil && perRPC == nil {
			err = errors.New("the builder returned no credentials")
		}
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("xdslb: call credentials %q for server %q: %w", c.name, s.URI, err)
		}
		stops = appendFunc(stops, f)
		opts = append(opts, grpc.WithPerRPCCredentials(perRPC))
	}
	return opts, stop, nil
}

// bundle builds the channel credentials.
func (s *Server) bundle() (bundle credentials.Bundle, stop func(), err error) {
	bundle, stop, err = s.channelCreds.builder.Build(s.channelCreds.config)
	if err == nil && bundle == nil {
		err = errors.New("the builder returned no credentials")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("xdslb: channel credentials %q for server %q: %w", s.channelCreds.name, s.URI, err)
	}
	if b, ok := bundle.(tlsBundle); ok {
		b.certs.LogTo(s.logger.Load())
	}
	return bundle, stop, nil
}

// Files returns a reader of the files of "tls" channel credentials, or nil if the server has others, and
// the token files of its call credentials.
func (s *Server) Files() (certs *CertLoader, tokens []string) {
	if b, ok := s.channelCreds.builder.(tlsBuilder); ok {
		certs = NewCertLoader(b.files)
	}
	for _, c := range s.callCreds {
		if file, ok := c.builder.(jwtBuilder); ok {
			tokens = append(tokens, string(file))
		}
	}
	return certs, tokens
}

func appendFunc(fs []func(), f func()) []func() {
	if f == nil {
		return fs
	}
	return append(fs, f)
}

// channelCreds reads channel_creds of a server: the first supported type is used, and only the
// types of the following entries are read (A27-BOOT-4..6). It reports whether the transport is
// plaintext.
func (p *parse) channelCreds(server value, s *Server) (plain bool) {
	list := server.field("channel_creds")
	if list.v == nil {
		fix := `list at least one, such as {"type": "insecure"} or {"type": "tls"}`
		if u, err := url.Parse(s.URI); err == nil && u.Scheme != "" && !port(u.Opaque) && resolver.Get(u.Scheme) == nil {
			fix += fmt.Sprintf("; if %q is the scheme of a source, import the package that registers it", u.Scheme)
		}
		p.missing(server, "channel_creds", fix)
		return false
	}
	var unsupported []string
	mistakes := len(p.errs)
	for entry, name := range p.credsEntries(list) {
		if s.channelCreds.name != "" || name == "" {
			continue
		}
		c := creds[ChannelBuilder]{name: name, builtin: true}
		config := entry.field("config")
		switch name {
		case "insecure":
			c.builder, plain = insecureBuilder{}, true
		case "tls":
			files := p.certFiles(config)
			c.builder, c.config = tlsBuilder{files}, canonical(files.document())
		default:
			c.builder, c.config, c.builtin = p.channelBuilder(name), rawConfig(config), false
			if c.builder == nil {
				unsupported = append(unsupported, name)
				continue
			}
			plain = name != googleDefault && p.tryChannel(entry, c)
		}
		s.channelCreds = c
	}
	if s.channelCreds.name == "" && len(p.errs) == mistakes {
		problem := "must list at least one channel credentials type"
		if len(unsupported) > 0 {
			problem = "must list a channel credentials type that is supported, and none of " + strings.Join(unsupported[:min(len(unsupported), 5)], ", ") + " is"
		}
		p.fail(list, problem, p.supportedChannelCreds())
	}
	return plain
}

// port reports whether s is a port, as in "localhost:443".
func port(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// supportedChannelCreds is the advice for a list without a supported type.
func (p *parse) supportedChannelCreds() string {
	if p.channelBuilder(googleDefault) != nil {
		return `add an entry of type "insecure", "tls" or "google_default", or register a supported type with grpc-go in the program`
	}
	return `add an entry of type "insecure" or "tls", or supply another type in the program (bootstrap.Parser.ChannelCreds)`
}

// callCreds reads call_creds of a server: all supported types are used (A97).
func (p *parse) callCreds(server value, s *Server, plain bool) {
	for entry, name := range p.credsEntries(server.field("call_creds")) {
		c := creds[CallBuilder]{name: name, builtin: true}
		switch name {
		case "":
			continue
		case "jwt_token_file":
			c.builder, c.config = p.jwtTokenFile(entry)
		default:
			c.builder, c.config, c.builtin = p.callBuilder(name), rawConfig(entry.field("config")), false
		}
		if c.builder == nil {
			continue
		}
		// grpc.NewClient has the same rule, with a less specific error.
		if p.tryCall(entry, c) && plain {
			p.fail(entry.field("type"), fmt.Sprintf("is sent over secure channels only, and channel_creds selects %q", s.channelCreds.name),
				`use channel credentials of type "tls", or remove the call credentials`)
		}
		s.callCreds = append(s.callCreds, c)
	}
}

// credsEntries iterates over the objects of a list of credentials and their types, "" for a
// malformed one.
func (p *parse) credsEntries(list value) iter.Seq2[value, string] {
	const fix = `write an object such as {"type": "tls", "config": {}}`
	return func(yield func(value, string) bool) {
		for entry := range p.list(list, "put the credentials objects between square brackets") {
			name := ""
			if p.isObject(entry, fix) {
				p.only(entry, "type", "config")
				name = p.requiredText(entry, "type", `name the type of the credentials, such as "tls"`)
			}
			if !yield(entry, name) {
				return
			}
		}
	}
}

// tryChannel builds credentials to check their configuration, and reports whether the transport
// is plaintext.
func (p *parse) tryChannel(entry value, c creds[ChannelBuilder]) (plain bool) {
	bundle, stop, err := c.builder.Build(c.config)
	if err != nil {
		p.badConfig(entry, c.name, err)
		return false
	}
	if stop != nil {
		defer stop()
	}
	if bundle == nil || bundle.TransportCredentials() == nil {
		return false
	}
	return bundle.TransportCredentials().Info().SecurityProtocol == "insecure"
}

// tryCall is tryChannel for call credentials; it reports whether they need a
// secure transport.
func (p *parse) tryCall(entry value, c creds[CallBuilder]) (needsSecurity bool) {
	perRPC, stop, err := c.builder.Build(c.config)
	if err != nil {
		p.badConfig(entry, c.name, err)
		return false
	}
	if stop != nil {
		defer stop()
	}
	return perRPC != nil && perRPC.RequireTransportSecurity()
}

func (p *parse) badConfig(entry value, name string, err error) {
	p.add(&parseError{
		Path:    entry.field("config").path,
		Problem: fmt.Sprintf("is not accepted by credentials of type %q: %v", name, err),
		Fix:     "see the documentation of that type",
		cause:   err,
	})
}

// rawConfig returns a "config" member for a builder.
func rawConfig(v value) json.RawMessage {
	if v.v == nil {
		return nil
	}
	return canonical(v.v)
}

type insecureBuilder struct{}

func (insecureBuilder) Build(json.RawMessage) (credentials.Bundle, func(), error) {
	return insecure.NewBundle(), nil, nil
}

// jwtTokenFile reads an entry of type jwt_token_file (A97). grpc's credentials do the rest:
// they cache the token until 30 s before it expires, start to refresh it a minute earlier, and
// refuse to send it over an insecure channel.
func (p *parse) jwtTokenFile(entry value) (CallBuilder, json.RawMessage) {
	const fix = "set it to the path of the file that holds the token"
	config := entry.field("config")
	if config.v == nil {
		p.missing(entry, "config", `add {"jwt_token_file": "<path>"}`)
		return nil, nil
	}
	if !p.isObject(config, `write {"jwt_token_file": "<path>"}`) {
		return nil, nil
	}
	path := p.requiredText(config, "jwt_token_file", fix)
	if path == "" {
		return nil, nil
	}
	return jwtBuilder(path), canonical(map[string]string{"jwt_token_file": path})
}

// A jwtBuilder is the path of a token file.
type jwtBuilder string

func (path jwtBuilder) Build(json.RawMessage) (credentials.PerRPCCredentials, func(), error) {
	c, err := jwt.NewTokenFileCallCredentials(string(path))
	return c, nil, err
}

// A tlsBuilder builds "tls" channel credentials (A65).
type tlsBuilder struct{ files CertFiles }

func (b tlsBuilder) Build(json.RawMessage) (credentials.Bundle, func(), error) {
	return tlsBundle{&tlsCreds{NewCertLoader(b.files)}}, nil, nil
}

// A tlsBundle is a bundle of transport credentials only.
type tlsBundle struct{ *tlsCreds }

func (b tlsBundle) TransportCredentials() credentials.TransportCredentials { return b.tlsCreds }
func (b tlsBundle) PerRPCCredentials() credentials.PerRPCCredentials       { return nil }
func (b tlsBundle) NewWithMode(string) (credentials.Bundle, error)         { return b, nil }

// tlsCreds is client-side TLS with roots and identity from files that may change. grpc's TLS
// credentials can follow a changing identity, but not changing roots, so each handshake uses
// new credentials made from the current files.
type tlsCreds struct{ certs *CertLoader }

func (c *tlsCreds) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	certs, err := c.certs.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{RootCAs: certs.Roots.Pool}
	if certs.Roots.TrustDomains != nil { // they contain no host names
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(s tls.ConnectionState) error { return certs.Roots.Verify(s.PeerCertificates, false) }
	}
	if certs.Identity != nil {
		config.Certificates = []tls.Certificate{*certs.Identity}
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (c *tlsCreds) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{}).Info()
}

// Clone returns c, which is immutable.
func (c *tlsCreds) Clone() credentials.TransportCredentials { return c }

func (c *tlsCreds) OverrideServerName(string) error {
	return errors.New("xdslb: tls credentials of a bootstrap do not support another server name")
}

func (c *tlsCreds) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("xdslb: tls credentials of a bootstrap are for clients")
}

// CertFiles names the files of TLS credentials: the configuration of "tls" channel credentials
// (A65) and of the "file_watcher" certificate provider (A29).
type CertFiles struct {
	// CertificateFile and PrivateKeyFile contain the client's identity in PEM format. Both are
	// set, or both are empty.
	CertificateFile, PrivateKeyFile string
	// CACertificateFile contains the certificates for verifying servers, in PEM format; if it
	// is empty, the system's are used.
	CACertificateFile string
	// SPIFFEBundleMapFile contains the certificates for verifying servers for each trust
	// domain, in SPIFFE's JSON format (A87). If it is not empty, CACertificateFile is ignored.
	SPIFFEBundleMapFile string
	// RefreshInterval is the age at which the files are read again; always positive.
	RefreshInterval time.Duration
}

const defaultRefreshInterval = 10 * time.Minute

type certFilesDoc struct {
	Certificate     string `json:"certificate_file,omitempty"`
	PrivateKey      string `json:"private_key_file,omitempty"`
	CACertificate   string `json:"ca_certificate_file,omitempty"`
	SPIFFEBundleMap string `json:"spiffe_trust_bundle_map_file,omitempty"`
	RefreshInterval string `json:"refresh_interval"`
}

func (f CertFiles) document() certFilesDoc {
	interval := fmt.Sprintf("%d.%09d", f.RefreshInterval/time.Second, f.RefreshInterval%time.Second)
	interval = strings.TrimSuffix(strings.TrimRight(interval, "0"), ".") + "s"
	return certFilesDoc{f.CertificateFile, f.PrivateKeyFile, f.CACertificateFile, f.SPIFFEBundleMapFile, interval}
}

// certFiles reads an object with the fields of CertFiles, all optional. It does not open the
// files, which may be written after the process has started.
func (p *parse) certFiles(config value) CertFiles {
	f := CertFiles{RefreshInterval: defaultRefreshInterval}
	if config.v == nil || !p.isObject(config, `write an object such as {"ca_certificate_file": "<path>"}`) {
		return f
	}
	p.only(config, "certificate_file", "private_key_file", "ca_certificate_file", "spiffe_trust_bundle_map_file", "refresh_interval")
	cert, key := config.field("certificate_file"), config.field("private_key_file")
	f.CertificateFile, f.PrivateKeyFile = p.text(cert), p.text(key)
	f.CACertificateFile = p.text(config.field("ca_certificate_file"))
	f.SPIFFEBundleMapFile = p.text(config.field("spiffe_trust_bundle_map_file"))
	switch {
	case cert.v != nil && key.v == nil:
		p.fail(key, "is required with certificate_file, and missing", "set it to the path of the certificate's key, or remove certificate_file")
	case cert.v == nil && key.v != nil:
		p.fail(cert, "is required with private_key_file, and missing", "set it to the path of the key's certificate, or remove private_key_file")
	case (f.CertificateFile == "") != (f.PrivateKeyFile == ""):
		p.fail(config, "certificate_file and private_key_file must both be paths or both be empty", "set both, or remove both")
	}
	if interval := config.field("refresh_interval"); interval.v != nil {
		const fix = `write seconds, such as "600s" or "0.5s"`
		var d durationpb.Duration
		if err := protojson.Unmarshal(canonical(interval.v), &d); err != nil {
			p.fail(interval, "must be a duration in the JSON format of google.protobuf.Duration", fix)
		} else if d.AsDuration() <= 0 {
			p.fail(interval, "must be positive", fix)
		} else {
			f.RefreshInterval = d.AsDuration()
		}
	}
	return f
}
