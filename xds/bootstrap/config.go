// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// A Config is a validated bootstrap document.
//
// The zero value is not useful; use [Parser.Parse] or [Parser.Load]. A Config and everything it points to are
// immutable and safe for concurrent use; callers must not modify them. It holds no resources,
// so there is nothing to close.
type Config struct {
	// Source describes the origin of the document, for messages.
	Source string
	// Servers is the fallback chain of servers (A71) for resources without an authority: at
	// least one, in order of preference, without duplicates.
	Servers []*Server
	// Authorities maps authorities to their settings for xdstp resources (A47). The empty name
	// is for resources without one.
	Authorities map[string]*authorityServers
	// DefaultListenerTemplate is the template for the Listener name of targets
	// without an authority; see ListenerName.
	DefaultListenerTemplate string
	// CertProviders holds the certificate provider instances by name (A29).
	CertProviders map[string]CertProvider
	// Ignored are the paths of unknown fields and server features: fields of newer clients
	// (A30), and mistakes.
	Ignored []string

	node        nodeDoc
	metadata    *structpb.Struct // of node; nil if absent
	fingerprint string
	warned      atomic.Bool // of unusable certificate providers
}

// An authorityServers is an entry of authorities (A47).
type authorityServers struct {
	// Servers is the authority's fallback chain, or Config.Servers if the authority lists no
	// servers.
	Servers []*Server
	// ListenerTemplate is the template for the Listener name of targets with
	// this authority; see ListenerName.
	ListenerTemplate string
}

// A Server is an xDS server, and its connection settings. Equal servers of one Config, in any
// list, are one *Server.
type Server struct {
	// URI is the gRPC target of the server.
	URI string

	// IgnoreResourceDeletion is the feature of gRFC A53, which is the default since A88.
	IgnoreResourceDeletion bool
	// TrustedXDSServer means that fields that affect security, such as the authority rewrite of
	// gRFC A81, are accepted from this server.
	TrustedXDSServer bool
	// FailOnDataErrors means that data errors drop the cached resource (A88).
	FailOnDataErrors bool
	// ResourceTimerIsTransientError means that the server reports absent resources, so that a
	// timeout for a resource is a connectivity problem (A88).
	ResourceTimerIsTransientError bool
	// Delta selects the incremental variant of ADS. The feature is xdslb's own; gRPC does not
	// define one.
	Delta bool

	local        bool // see Local
	channelCreds creds[ChannelBuilder]
	callCreds    []creds[CallBuilder]
	key          string
	logger       atomic.Pointer[slog.Logger] // see Config.LogTo
}

// A CertProvider is an entry of certificate_providers (A29).
type CertProvider struct {
	// Plugin is the name of the certificate provider plugin.
	Plugin string
	// Files reads the files named by the Config of a "file_watcher"; nil for other plugins.
	Files *CertLoader
	// Unusable is the reason why the plugin cannot be used (Parser.CertPlugin), or nil. It may
	// quote the plugin's configuration, including secrets.
	Unusable error
	// Config is the plugin's configuration as JSON, with all its fields; nil if absent.
	Config json.RawMessage
}

// LogTo sets the Logger of everything that reads files for the configuration: the first that is
// not nil, otherwise slog.Default(). See [CertLoader.LogTo]. The first call logs the unusable
// certificate providers with their reasons.
func (c *Config) LogTo(logger *slog.Logger) {
	if !c.warned.Swap(true) {
		for _, name := range slices.Sorted(maps.Keys(c.CertProviders)) {
			if p := c.CertProviders[name]; p.Unusable != nil {
				go cmp.Or(logger, slog.Default()).Warn("xdslb: certificate provider cannot be used: clusters that name it are rejected",
					"instance", name, "plugin", p.Plugin, "error", p.Unusable)
			}
		}
	}
	if logger == nil {
		return
	}
	servers := slices.Clone(c.Servers)
	for _, a := range c.Authorities {
		servers = append(servers, a.Servers...)
	}
	for _, s := range servers {
		s.logger.CompareAndSwap(nil, logger)
	}
	for _, p := range c.CertProviders {
		if p.Files != nil {
			p.Files.LogTo(logger)
		}
	}
}

// CheckCertProvider returns an error if clusters cannot use an instance of CertProviders: for root
// certificates if roots is true, else for the client's certificate. For roots, a file_watcher must
// name a file of roots, since without one the system's roots would be trusted. It need not name a
// client certificate: the client then presents none, as with grpc-go's xDS credentials. The error may
// be sent to control planes.
func (c *Config) CheckCertProvider(instance string, roots bool) error {
	p, ok := c.CertProviders[instance]
	switch {
	case !ok:
		use := "identity"
		if roots {
			use = "root"
		}
		return fmt.Errorf("%s certificate provider instance name %.200q missing in bootstrap configuration (certificate_providers)", use, instance) // same text as grpc-go (D5)
	case p.Unusable != nil: // the reason is omitted: it may quote the configuration, and this error may be sent to control planes
		return fmt.Errorf("must be an instance whose plugin can be used: plugin %q is not registered in the client, or rejects its configuration (the client's log has the reason)", p.Plugin)
	case p.Files == nil:
		return nil
	}
	if f := p.Files.Files(); roots && f.CACertificateFile == "" && f.SPIFFEBundleMapFile == "" {
		return errors.New("must be an instance with ca_certificate_file or spiffe_trust_bundle_map_file")
	}
	return nil
}

// Key identifies the server within the process: servers with equal keys have the same URI,
// credentials and known features (A47), so they share one connection. A key contains the
// configuration of the credentials, so it must not be logged; use String for logs.
func (s *Server) Key() string { return s.key }

// Local reports whether the server is a source of resources in this process: see xds.RegisterSource.
func (s *Server) Local() bool { return s.local }

// IsAgent reports whether a server is Istio's agent, which accepts one stream: it has a Unix socket, and its
// bootstraps have a mark of their generator.
func (c *Config) IsAgent(s *Server) bool {
	return strings.HasPrefix(s.URI, "unix:") && c.metadata.GetFields()["GENERATOR"].GetStringValue() == "grpc"
}

// HasCallCreds reports whether the client authenticates itself to the server by call credentials (A97).
func (s *Server) HasCallCreds() bool { return len(s.callCreds) > 0 }

// String returns the URI with the types of the credentials and the features,
// such as "istiod:15012 (tls, jwt_token_file, fail_on_data_errors)".
func (s *Server) String() string {
	words := []string{s.channelCreds.name}
	if s.local {
		words[0] = "local"
	}
	for _, c := range s.callCreds {
		words = append(words, c.name)
	}
	words = append(words, s.features()...)
	return s.URI + " (" + strings.Join(words, ", ") + ")"
}

// Names of server features.
const (
	featureIgnoreResourceDeletion        = "ignore_resource_deletion"
	featureTrustedXDSServer              = "trusted_xds_server"
	featureFailOnDataErrors              = "fail_on_data_errors"
	featureResourceTimerIsTransientError = "resource_timer_is_transient_error"
	featureDelta                         = "xdslb.delta_ads"
)

// setFeature sets a feature, and reports whether it is known.
func (s *Server) setFeature(name any) (known bool) {
	switch name {
	case "xds_v3": // the only supported version
	case featureIgnoreResourceDeletion:
		s.IgnoreResourceDeletion = true
	case featureTrustedXDSServer:
		s.TrustedXDSServer = true
	case featureFailOnDataErrors:
		s.FailOnDataErrors = true
	case featureResourceTimerIsTransientError:
		s.ResourceTimerIsTransientError = true
	case featureDelta:
		s.Delta = true
	default:
		return false
	}
	return true
}

// features returns the names of the enabled features, in a fixed order.
func (s *Server) features() []string {
	var names []string
	for _, f := range []struct {
		set  bool
		name string
	}{
		{s.FailOnDataErrors, featureFailOnDataErrors},
		{s.IgnoreResourceDeletion, featureIgnoreResourceDeletion},
		{s.ResourceTimerIsTransientError, featureResourceTimerIsTransientError},
		{s.TrustedXDSServer, featureTrustedXDSServer},
		{s.Delta, featureDelta},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

const (
	userAgentName    = "xdslb"
	userAgentVersion = "0.1.0"

	featureNoOverprovisioning = "envoy.lb.does_not_support_overprovisioning"
	featureResourceInSotW     = "xds.config.resource-in-sotw"
	featureResourceTTL        = "xds.config.supports-resource-ttl"
	featureSendAllClusters    = "envoy.lrs.supports_send_all_clusters"
)

// Node returns the message that identifies this client to an ADS server: the values of the
// document, and those determined by the client (A27-NODE-2..4). Each call returns a new
// message, which the caller may modify.
func (c *Config) Node() *corev3.Node {
	n := &corev3.Node{
		Id:                   c.node.ID,
		Cluster:              c.node.Cluster,
		Metadata:             proto.CloneOf(c.metadata),
		UserAgentName:        userAgentName,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: userAgentVersion},
		ClientFeatures:       []string{featureNoOverprovisioning, featureResourceInSotW, featureResourceTTL},
	}
	if l := c.node.Locality; l != (localityDoc{}) {
		n.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	return n
}

// LRSNode is Node for a load reporting server, with the additional feature that the client can
// be told to report on all its clusters.
func (c *Config) LRSNode() *corev3.Node {
	n := c.Node()
	n.ClientFeatures = append(n.ClientFeatures, featureSendAllClusters)
	return n
}

// Fingerprint identifies the contents of the document: configs have the same fingerprint if,
// and for practical purposes only if, they lead to the same behavior. The source, unknown
// fields, unused credentials, explicit defaults, order of names and white space do not affect
// it. There is one XdsClient per fingerprint and process.
func (c *Config) Fingerprint() string { return c.fingerprint }

// String returns the document as parsed, as JSON, for logs and bug reports. The named files are
// not read. The configuration of unknown credentials and plugins is omitted, because it might
// contain a secret.
func (c *Config) String() string {
	var b bytes.Buffer
	if err := json.Indent(&b, canonical(c.document(true)), "", "  "); err != nil {
		return err.Error()
	}
	return b.String()
}

// The document types are the JSON form of a Config, for String and for hashes. Parsing does not use
// them: see value.
type (
	configDoc struct {
		Servers         []serverDoc                `json:"xds_servers"`
		Authorities     map[string]authorityDoc    `json:"authorities,omitempty"`
		DefaultListener string                     `json:"client_default_listener_resource_name_template"`
		Node            nodeDoc                    `json:"node"`
		CertProviders   map[string]certProviderDoc `json:"certificate_providers,omitempty"`
	}
	authorityDoc struct {
		Servers  []serverDoc `json:"xds_servers"`
		Listener string      `json:"client_listener_resource_name_template"`
	}
	serverDoc struct {
		URI          string     `json:"server_uri"`
		ChannelCreds []credsDoc `json:"channel_creds,omitempty"`
		CallCreds    []credsDoc `json:"call_creds,omitempty"`
		Features     []string   `json:"server_features,omitempty"`
	}
	credsDoc struct {
		Type   string          `json:"type"`
		Config json.RawMessage `json:"config,omitempty"`
	}
	nodeDoc struct {
		ID       string         `json:"id,omitempty"`
		Cluster  string         `json:"cluster,omitempty"`
		Locality localityDoc    `json:"locality,omitzero"`
		Metadata map[string]any `json:"metadata,omitempty"`
	}
	localityDoc struct {
		Region  string `json:"region,omitempty"`
		Zone    string `json:"zone,omitempty"`
		SubZone string `json:"sub_zone,omitempty"`
	}
	certProviderDoc struct {
		Plugin string          `json:"plugin_name"`
		Config json.RawMessage `json:"config,omitempty"`
	}
)

// document returns c as a document; discreet omits potential secrets.
func (c *Config) document(discreet bool) configDoc {
	doc := configDoc{
		Servers:         serverDocs(c.Servers, discreet),
		Authorities:     make(map[string]authorityDoc),
		DefaultListener: c.DefaultListenerTemplate,
		Node:            c.node,
		CertProviders:   make(map[string]certProviderDoc),
	}
	for name, a := range c.Authorities {
		doc.Authorities[name] = authorityDoc{serverDocs(a.Servers, discreet), a.ListenerTemplate}
	}
	for name, p := range c.CertProviders {
		d := certProviderDoc{p.Plugin, p.Config}
		if discreet && p.Files == nil {
			d.Config = nil
		}
		doc.CertProviders[name] = d
	}
	return doc
}

func serverDocs(servers []*Server, discreet bool) []serverDoc {
	docs := make([]serverDoc, len(servers))
	for i, s := range servers {
		docs[i] = s.document(discreet)
	}
	return docs
}

func (s *Server) document(discreet bool) serverDoc {
	doc := serverDoc{URI: s.URI, Features: s.features()}
	if !s.local {
		doc.ChannelCreds = []credsDoc{s.channelCreds.document(discreet)}
	}
	for _, c := range s.callCreds {
		doc.CallCreds = append(doc.CallCreds, c.document(discreet))
	}
	return doc
}

// seal computes the fingerprint of c, whose other fields must be complete.
func (c *Config) seal() {
	sum := sha256.Sum256(canonical(c.document(false)))
	c.fingerprint = hex.EncodeToString(sum[:])
}

// appendNew appends s to a fallback chain unless the chain already contains it: the server that
// just failed is not a fallback.
func appendNew(servers []*Server, s *Server) []*Server {
	if slices.Contains(servers, s) {
		return servers
	}
	return append(servers, s)
}
