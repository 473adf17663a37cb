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
// The zero value is not useful; use [Parse] or [Load]. A Config and everything
// it points to are immutable: callers must not modify them, and may share them
// between goroutines. It holds no resources, so there is nothing to close.
type Config struct {
	// Source is where the document came from, for messages.
	Source string
	// Servers is the fallback chain of servers (A71) for resources without an
	// authority: at least one, the preferred one first, none twice.
	Servers []*Server
	// Authorities holds, by name, what differs for xdstp resources of an
	// authority (A47). The empty name is that of resources without one.
	Authorities map[string]*Authority
	// DefaultListenerTemplate is the template for the Listener name of targets
	// without an authority; see ListenerName.
	DefaultListenerTemplate string
	// CertProviders holds the certificate provider instances by name (A29).
	CertProviders map[string]CertProvider
	// Ignored are the paths of fields, and of server features, that nobody knows: those of
	// newer clients (A30), and mistakes.
	Ignored []string

	node        nodeDoc
	metadata    *structpb.Struct // of node; nil if absent
	fingerprint string
	warned      atomic.Bool // of unusable certificate providers
}

// An Authority is an entry of authorities (A47).
type Authority struct {
	// Servers is the authority's fallback chain; that of the Config if the
	// authority lists none.
	Servers []*Server
	// ListenerTemplate is the template for the Listener name of targets with
	// this authority; see ListenerName.
	ListenerTemplate string
}

// A Server is an xDS server, and how to talk to it. Servers of one Config that
// are described alike, whichever list they are in, are one *Server.
type Server struct {
	// URI is the gRPC target of the server.
	URI string

	// IgnoreResourceDeletion is the feature of gRFC A53, which is the default
	// since A88.
	IgnoreResourceDeletion bool
	// TrustedXDSServer says that fields that affect security, such as the
	// authority rewrite of gRFC A81, are taken from this server.
	TrustedXDSServer bool
	// FailOnDataErrors says that data errors drop the cached resource (A88).
	FailOnDataErrors bool
	// ResourceTimerIsTransientError says that the server reports absent
	// resources, so that waiting for one in vain is a connectivity problem
	// (A88).
	ResourceTimerIsTransientError bool
	// Delta says that the server is to be spoken to in the incremental variant of
	// ADS. The feature is xdslb's own; gRPC defines none.
	Delta bool

	channelCreds creds[ChannelBuilder]
	callCreds    []creds[CallBuilder]
	key          string
	logger       atomic.Pointer[slog.Logger] // see Config.LogTo
}

// A CertProvider is an entry of certificate_providers (A29).
type CertProvider struct {
	// Plugin is the name of the certificate provider plugin.
	Plugin string
	// Files reads what the Config of a "file_watcher" names, nil for other plugins.
	Files *CertLoader
	// Unusable is why the plugin cannot be used (Parser.CertPlugin), nil if it can. It may quote
	// the plugin's configuration, and with it secrets.
	Unusable error
	// Config is the plugin's own configuration as JSON, with all its fields;
	// nil if absent.
	Config json.RawMessage
}

// LogTo sets the Logger of everything that reads files on behalf of the configuration: the first
// that is not nil, or else slog.Default(). See [CertLoader.LogTo]. The first call logs which
// certificate providers cannot be used, and why.
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

// CheckCertProvider returns why clusters cannot use an instance of CertProviders for roots, or
// else for the client's certificate; nil if they can. A file_watcher needs a file of roots:
// without one the system's roots would be trusted. It does not need a certificate: the client
// shows none then, as with grpc-go's xDS credentials. The error may be sent to control planes.
func (c *Config) CheckCertProvider(instance string, roots bool) error {
	p, ok := c.CertProviders[instance]
	switch {
	case !ok:
		use := "identity"
		if roots {
			use = "root"
		}
		return fmt.Errorf("%s certificate provider instance name %.200q missing in bootstrap configuration (certificate_providers)", use, instance) // grpc-go's words (D5)
	case p.Unusable != nil: // which may quote the configuration, and this error leaves the process
		return fmt.Errorf("must be an instance whose plugin can be used: plugin %q is not registered in the client, or rejects its configuration (the client's log has the reason)", p.Plugin)
	case p.Files == nil:
		return nil
	}
	if f := p.Files.Files(); roots && f.CACertificateFile == "" && f.SPIFFEBundleMapFile == "" {
		return errors.New("must be an instance with ca_certificate_file or spiffe_trust_bundle_map_file")
	}
	return nil
}

// Key identifies the server within the process: servers with equal keys have
// the same URI, credentials and known features (A47), so one connection serves
// them all. A key contains the configuration of the credentials, so it is not
// for logs; use String there.
func (s *Server) Key() string { return s.key }

// String returns the URI with the types of the credentials and the features,
// such as "istiod:15012 (tls, jwt_token_file, fail_on_data_errors)".
func (s *Server) String() string {
	words := []string{s.channelCreds.name}
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

// setFeature notes a feature, and reports whether it is known.
func (s *Server) setFeature(name any) (known bool) {
	switch name {
	case "xds_v3": // the only version that there is
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

// features returns the names of the features that are set, in a fixed order.
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

// Node returns the message that introduces this client to an ADS server:
// what the document says, and what only the client can know (A27-NODE-2..4).
// It is a fresh message each time, which the caller may modify.
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

// LRSNode is Node for a load reporting server: it says in addition that the
// client can be told to report on all its clusters.
func (c *Config) LRSNode() *corev3.Node {
	n := c.Node()
	n.ClientFeatures = append(n.ClientFeatures, featureSendAllClusters)
	return n
}

// Fingerprint identifies what the document says: configs have the same one if,
// and for practical purposes only if, they lead to the same behavior. The
// source, unknown fields, unused credentials, spelled-out defaults, order of
// names and white space make no difference. The design has one XdsClient per
// fingerprint and process.
func (c *Config) Fingerprint() string { return c.fingerprint }

// String returns the document as this package understood it, as JSON, for logs
// and bug reports. Files that it names are not read. The configuration of
// credentials and plugins that this package does not know is left out, because
// it might hold a secret.
func (c *Config) String() string {
	var b bytes.Buffer
	if err := json.Indent(&b, canonical(c.document(true)), "", "  "); err != nil {
		return err.Error()
	}
	return b.String()
}

// The document types are Config in the shape of the JSON text. Reading does not
// use them; see value.
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
		ChannelCreds []credsDoc `json:"channel_creds"`
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

// document returns c as a document; discreet leaves out what might be secret.
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
	doc := serverDoc{
		URI:          s.URI,
		ChannelCreds: []credsDoc{s.channelCreds.document(discreet)},
		Features:     s.features(),
	}
	for _, c := range s.callCreds {
		doc.CallCreds = append(doc.CallCreds, c.document(discreet))
	}
	return doc
}

// seal computes the fingerprint once the rest of c is complete.
func (c *Config) seal() {
	sum := sha256.Sum256(canonical(c.document(false)))
	c.fingerprint = hex.EncodeToString(sum[:])
}

// appendNew appends s to a fallback chain unless it is there already: falling
// back to the server that just failed is no fallback.
func appendNew(servers []*Server, s *Server) []*Server {
	if slices.Contains(servers, s) {
		return servers
	}
	return append(servers, s)
}
