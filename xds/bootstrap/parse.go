// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/xds/internal/files"
	"github.com/xdslb/xdslb/xds/internal/sources"
)

// A Parser parses bootstrap documents. The zero value is ready to use and supports the built-in
// types of credentials: "insecure" and "tls" channel credentials, "jwt_token_file" call
// credentials. A Parser may be copied, and is safe for concurrent use if its functions are.
type Parser struct {
	// ChannelCreds and CallCreds return the builder for a type of credentials that is not built
	// in, or nil if the type is unknown. They are called only while parsing.
	ChannelCreds func(name string) ChannelBuilder
	CallCreds    func(name string) CallBuilder
	// CertPlugin returns nil if the program has a certificate provider plugin that accepts the
	// configuration, otherwise the error. It is called for plugins other than "file_watcher",
	// the only built-in one. An unusable instance is an error of the resources that name it
	// (A29).
	CertPlugin func(name string, config json.RawMessage) error
	// Fallback, unless it is empty, is the beginning of the server_uri of a source in the process. With the
	// fingerprint of the document after it, the source is the last server of every fallback chain.
	Fallback string
}

// Names of the environment variables that Load reads.
const (
	envFile = "GRPC_XDS_BOOTSTRAP"
	envText = "GRPC_XDS_BOOTSTRAP_CONFIG"
)

// Load parses the file named by the environment variable GRPC_XDS_BOOTSTRAP, or if that is
// unset or empty, the text in GRPC_XDS_BOOTSTRAP_CONFIG (A27-BOOT-1). It returns an error if
// neither is set.
func (p Parser) Load() (*Config, error) {
	if name := os.Getenv(envFile); name != "" {
		source := "file " + name
		data, err := files.Read(name, maxSize)
		if err != nil {
			e := &parseError{Source: source, Problem: "cannot be read: " + err.Error(), Fix: "make " + envFile + " the path of the bootstrap document, which this process must be able to read", cause: err}
			if strings.HasPrefix(strings.TrimSpace(name), "{") {
				e.Source = "environment variable " + envFile
				e.Problem = "must be the path of a file, but contains JSON"
				e.Fix = "move the text to " + envText + " and unset " + envFile
			}
			return nil, e
		}
		return p.Parse(source, data)
	}
	if text := os.Getenv(envText); text != "" {
		return p.Parse("environment variable "+envText, []byte(text))
	}
	return nil, &parseError{
		Source:  "environment",
		Problem: "there is no xDS bootstrap: neither " + envFile + " nor " + envText + " is set",
		Fix:     "set " + envFile + " to the path of a bootstrap file, or " + envText + " to its text",
	}
}

// Parse parses a bootstrap document. The source, such as "file /etc/xds.json", is used in
// messages only. If the document is invalid, the error lists all problems, each with the path of the field and a remedy.
func (p Parser) Parse(source string, data []byte) (*Config, error) {
	root, err := decode(source, data)
	if err != nil {
		return nil, err
	}
	d := &parse{errorList: errorList{source: source}, parser: p, known: make(map[string]*Server)}
	c := d.config(root)
	if err := d.err(); err != nil {
		return nil, err
	}
	c.seal()
	if p.Fallback != "" {
		s := &Server{URI: p.Fallback + c.fingerprint, local: true}
		s.key = string(canonical(s.document(false)))
		c.Servers = append(slices.Clip(c.Servers), s)
		for _, a := range c.Authorities {
			a.Servers = append(slices.Clip(a.Servers), s)
		}
		c.seal()
	}
	return c, nil
}

// A parse is the state of parsing one document.
type parse struct {
	errorList
	parser Parser
	known  map[string]*Server // by key

	ignored []string
}

// only records the fields of an object that are not in names.
func (p *parse) only(object value, names ...string) {
	fields, _ := object.v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] != nil && !slices.Contains(names, name) { // for example, Istio writes a null
			p.ignored = append(p.ignored, object.field(name).path)
		}
	}
}

func (p *parse) channelBuilder(name string) ChannelBuilder {
	if p.parser.ChannelCreds == nil {
		return nil
	}
	return p.parser.ChannelCreds(name)
}

func (p *parse) callBuilder(name string) CallBuilder {
	if p.parser.CallCreds == nil {
		return nil
	}
	return p.parser.CallCreds(name)
}

func (p *parse) certPlugin(name string, config json.RawMessage) error {
	if p.parser.CertPlugin == nil {
		return errors.New("plugin is not registered in the program")
	}
	return p.parser.CertPlugin(name, config)
}

// config reads the document, starting with the most important parts, because the first mistake
// found is the first reported.
func (p *parse) config(root value) *Config {
	c := &Config{Source: p.source, Authorities: make(map[string]*authorityServers), CertProviders: make(map[string]CertProvider)}
	if !p.isObject(root, `write an object with at least "xds_servers"`) {
		return c
	}
	const fix = `list at least one, such as {"server_uri": "xds.example.com:443", "channel_creds": [{"type": "tls"}]}`
	switch servers := root.field("xds_servers"); {
	case servers.v == nil:
		p.missing(root, "xds_servers", fix)
	case isEmptyList(servers.v):
		p.fail(servers, "must have at least one server", fix)
	default:
		c.Servers = p.servers(servers)
	}
	c.node, c.metadata = p.node(root.field("node"))
	for name, entry := range p.members(root.field("authorities"), "map the name of each authority to an object") {
		c.Authorities[name] = p.authority(entry, name, c.Servers)
	}
	c.DefaultListenerTemplate = p.text(root.field("client_default_listener_resource_name_template"))
	if c.DefaultListenerTemplate == "" {
		c.DefaultListenerTemplate = "%s"
	}
	for name, entry := range p.members(root.field("certificate_providers"), "map the name of each instance to an object") {
		c.CertProviders[name] = p.certProvider(entry)
	}
	p.only(root, "xds_servers", "node", "authorities", "client_default_listener_resource_name_template", "certificate_providers",
		"server_listener_resource_name_template", "allowed_grpc_services") // for servers, and for unsupported HTTP filters (A102)
	c.Ignored = p.ignored
	return c
}

// servers reads a fallback chain.
func (p *parse) servers(list value) (servers []*Server) {
	for entry := range p.list(list, "put the server objects between square brackets") {
		if p.isObject(entry, `write an object with "server_uri" and "channel_creds"`) {
			servers = appendNew(servers, p.server(entry))
		}
	}
	return servers
}

// server reads a server, and returns an existing equal one if there is one (A47).
func (p *parse) server(entry value) *Server {
	s := &Server{URI: p.serverURI(entry)}
	if s.local = sources.Of(s.URI) != nil; s.local {
		s.URI = p.fileURI(s.URI)
	} else {
		plain := p.channelCreds(entry, s)
		p.callCreds(entry, s, plain)
	}
	for feature := range p.list(entry.field("server_features"), "put the features between square brackets") {
		if !s.setFeature(feature.v) {
			p.ignored = append(p.ignored, feature.path)
		}
	}
	p.only(entry, "server_uri", "channel_creds", "call_creds", "server_features")
	s.key = string(canonical(s.document(false)))
	if known := p.known[s.key]; known != nil {
		return known
	}
	p.known[s.key] = s
	return s
}

// serverURI reads server_uri, any gRPC target (A27-BOOT-3). Only invalid targets are rejected,
// which grpc would silently look up in DNS.
func (p *parse) serverURI(entry value) string {
	uri := p.requiredText(entry, "server_uri", `set it to the gRPC target of the server, such as "xds.example.com:443"`)
	if uri != strings.TrimSpace(uri) {
		p.fail(entry.field("server_uri"), "must not start or end with white space", "remove the white space")
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if ok && (scheme == "http" || scheme == "https") && resolver.Get(scheme) == nil {
		p.fail(entry.field("server_uri"), "must be a gRPC target, not a web address",
			fmt.Sprintf(`write %q, with a port; channel_creds decides about TLS`, strings.TrimRight(rest, "/")))
	}
	return uri
}

// fileURI makes the path of a file URI absolute: it may be relative to the bootstrap file. Other URIs
// stay as they are.
func (p *parse) fileURI(uri string) string {
	name, ok := strings.CutPrefix(uri, "file:")
	if !ok {
		return uri
	}
	name = strings.TrimPrefix(name, "//")
	if !filepath.IsAbs(name) {
		if file, ok := strings.CutPrefix(p.source, "file "); ok {
			name = filepath.Join(filepath.Dir(file), name)
		}
		if abs, err := filepath.Abs(name); err == nil {
			name = abs
		}
	}
	return "file://" + name
}

// node reads the JSON form of envoy.config.core.v3.Node, in which each field has two valid
// spellings (A27-BOOT-9). Only fields that belong in the document are read, so the fields set
// by the client cannot come from the file (A27-BOOT-10).
func (p *parse) node(v value) (nodeDoc, *structpb.Struct) {
	var n nodeDoc
	if v.v == nil || !p.isObject(v, `write an object such as {"id": "<name of this client>"}`) {
		return n, nil
	}
	p.only(v, nodeFields()...)
	n.ID = p.text(v.field("id"))
	n.Cluster = p.text(v.field("cluster"))
	const fix = `write an object with "region", "zone" and "sub_zone"`
	if l := v.field("locality"); l.v != nil && p.isObject(l, fix) {
		p.only(l, "region", "zone", "sub_zone", "subZone")
		n.Locality.Region = p.text(l.field("region"))
		n.Locality.Zone = p.text(l.field("zone"))
		subZone := l.field("sub_zone")
		if subZone.v == nil {
			subZone = l.field("subZone")
		}
		n.Locality.SubZone = p.text(subZone)
	}
	m := v.field("metadata")
	if m.v == nil || !p.isObject(m, "write an object; its members may be anything") {
		return n, nil
	}
	n.Metadata = m.v.(map[string]any)
	if bad, ok := outOfRange(value{v: m.v}); ok {
		bad.path = m.path + bad.path
		p.fail(bad, "must be within the range of a double", "write a smaller number, or a string")
		return n, nil
	}
	metadata, err := structpb.NewStruct(n.Metadata)
	if err != nil {
		p.add(&parseError{Path: m.path, Problem: "cannot be sent: " + err.Error(), Fix: "remove what the message complains about", cause: err})
	}
	return n, metadata
}

// nodeFields returns the names of a Node's fields, in both spellings.
func nodeFields() (names []string) {
	fields := (*corev3.Node)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()), fields.Get(i).JSONName())
	}
	return names
}

// outOfRange returns the first number below v that exceeds the range of node metadata's number
// type, with its path relative to v.
func outOfRange(v value) (bad value, ok bool) {
	switch x := v.v.(type) {
	case json.Number:
		_, err := x.Float64()
		return v, err != nil
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if bad, ok := outOfRange(value{v: x[name]}); ok {
				bad.path = value{}.field(name).path + bad.path
				return bad, true
			}
		}
	case []any:
		for i := range x {
			if bad, ok := outOfRange(value{v: x[i]}); ok {
				bad.path = v.index(i).path + bad.path
				return bad, true
			}
		}
	}
	return value{}, false
}

// certProvider reads an entry of certificate_providers (A29).
func (p *parse) certProvider(entry value) CertProvider {
	var c CertProvider
	if !p.isObject(entry, `write an object with "plugin_name" and "config"`) {
		return c
	}
	c.Plugin = p.requiredText(entry, "plugin_name", `name the plugin, such as "file_watcher"`)
	p.only(entry, "plugin_name", "config")
	config := entry.field("config")
	c.Config = rawConfig(config)
	if c.Plugin != "file_watcher" {
		c.Unusable = p.certPlugin(c.Plugin, c.Config)
		return c
	}
	files := p.certFiles(config)
	c.Files = NewCertLoader(files)
	if files.CertificateFile == "" && files.CACertificateFile == "" && files.SPIFFEBundleMapFile == "" {
		p.fail(config, `must name at least one of "certificate_file" and "ca_certificate_file"`, "add the paths of the files to watch")
	}
	return c
}
