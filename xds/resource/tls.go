// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/xdslb/xdslb/picker"
)

// tlsSocket is the name of the only supported transport socket.
const tlsSocket = "envoy.transport_sockets.tls"

// maxServerName is the maximum length of an SNI (A101, T-SEC-2).
const maxServerName = 255

// transportSocket converts the TLS settings of a cluster (A29), which are validated regardless
// of the credentials of the channels; nil without settings. Unsupported sockets are rejected,
// including A86's proxy: connecting without them would send plaintext or bypass the proxy.
func (d *decoder) transportSocket(m *clusterv3.Cluster, p *path) *picker.TLS {
	if len(m.GetTransportSocketMatches()) > 0 {
		p.dot("transport_socket_matches").fail("must be empty: gRPC does not support it")
	}
	if m.GetTransportSocketMatcher() != nil { // it refers to those matches
		p.dot("transport_socket_matcher").fail("must not be set: gRPC does not support it")
	}
	socket := m.GetTransportSocket()
	if socket == nil {
		return nil
	}
	p = p.dot("transport_socket")
	if socket.GetName() != tlsSocket {
		p.dot("name").refuse(socket.GetName(), "must be "+tlsSocket)
	}
	p = p.dot("typed_config")
	context := new(tlsv3.UpstreamTlsContext)
	if socket.GetTypedConfig() == nil {
		p.fail("must be set")
		return nil
	}
	if !unpack(socket.GetTypedConfig(), context, p) {
		return nil
	}
	if n := len(context.GetSni()); n > maxServerName {
		p.dot("sni").refuse(n, "must be at most 255 bytes long")
	}
	t := &picker.TLS{
		ServerName:      context.GetSni(),
		AutoHostName:    context.GetAutoHostSni(),
		MatchServerName: context.GetAutoSniSanValidation(),
	}
	p = p.dot("common_tls_context")
	common := context.GetCommonTlsContext()
	if common == nil {
		p.fail("must be set")
		return nil
	}
	if common.GetTlsParams() != nil {
		p.dot("tls_params").fail("must not be set: gRPC does not support it")
	}
	if common.GetCustomHandshaker() != nil {
		p.dot("custom_handshaker").fail("must not be set: gRPC does not support it")
	}
	d.identity(t, common, p)
	d.validation(t, common, p)
	return t
}

// identity reads the source of the client's certificate. Older control planes use only the
// deprecated field.
func (d *decoder) identity(t *picker.TLS, m *tlsv3.CommonTlsContext, p *path) {
	const field, deprecated = "tls_certificate_provider_instance", "tls_certificate_certificate_provider_instance"
	switch {
	case m.GetTlsCertificateProviderInstance() != nil:
		t.Identity = d.certInstance(m.GetTlsCertificateProviderInstance(), identityCert, p.dot(field))
	case m.GetTlsCertificateCertificateProviderInstance() != nil:
		t.Identity = d.certInstance(m.GetTlsCertificateCertificateProviderInstance(), identityCert, p.dot(deprecated))
	case len(m.GetTlsCertificates()) > 0:
		p.dot("tls_certificates").fail("must be empty unless " + field + " is set")
	case len(m.GetTlsCertificateSdsSecretConfigs()) > 0:
		p.dot("tls_certificate_sds_secret_configs").fail("must be empty unless " + field + " is set")
	}
}

// validation reads the settings for verifying servers.
func (d *decoder) validation(t *picker.TLS, m *tlsv3.CommonTlsContext, p *path) {
	var context *tlsv3.CertificateValidationContext
	var deprecated *tlsv3.CommonTlsContext_CertificateProviderInstance // used by older control planes for the roots
	const field = "validation_context_certificate_provider_instance"
	at, old := p, p.dot(field)
	switch v := m.GetValidationContextType().(type) {
	case *tlsv3.CommonTlsContext_ValidationContext:
		context, at = v.ValidationContext, p.dot("validation_context")
	case *tlsv3.CommonTlsContext_CombinedValidationContext:
		p := p.dot("combined_validation_context")
		context, at = v.CombinedValidationContext.GetDefaultValidationContext(), p.dot("default_validation_context")
		deprecated, old = v.CombinedValidationContext.GetValidationContextCertificateProviderInstance(), p.dot(field)
	case *tlsv3.CommonTlsContext_ValidationContextCertificateProviderInstance:
		deprecated = v.ValidationContextCertificateProviderInstance
	case *tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig:
		p.dot("validation_context_sds_secret_config").fail("must not be set: gRPC does not support it")
		return
	default:
		p.dot("validation_context").fail("must be set")
		return
	}
	unsupported(context, at)
	switch {
	case context.GetCaCertificateProviderInstance() != nil:
		t.Roots = d.certInstance(context.GetCaCertificateProviderInstance(), RootCerts, at.dot("ca_certificate_provider_instance"))
	case context.GetSystemRootCerts() != nil: // A82
		t.SystemRoots = true
	case deprecated != nil:
		t.Roots = d.certInstance(deprecated, RootCerts, old)
	default:
		at.fail("must have ca_certificate_provider_instance or system_root_certs")
	}
	t.SANs = d.sanMatches(context.GetMatchSubjectAltNames(), at.dot("match_subject_alt_names"))
	// gRPC does not know the field, and would accept certificates that it excludes.
	if len(t.SANs) == 0 && len(context.GetMatchTypedSubjectAltNames()) > 0 {
		at.dot("match_typed_subject_alt_names").fail("must not be set without match_subject_alt_names: gRPC reads only these")
	}
}

// unsupported rejects conditions on certificates that would not be enforced (A29).
func unsupported(m *tlsv3.CertificateValidationContext, p *path) {
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"verify_certificate_spki", len(m.GetVerifyCertificateSpki()) > 0},
		{"verify_certificate_hash", len(m.GetVerifyCertificateHash()) > 0},
		{"require_signed_certificate_timestamp", m.GetRequireSignedCertificateTimestamp().GetValue()},
		{"crl", m.GetCrl() != nil},
		{"custom_validator_config", m.GetCustomValidatorConfig() != nil},
	} {
		if f.set {
			p.dot(f.field).fail("must not be set: gRPC does not support it")
		}
	}
}

// certInstance converts either form of a reference to a provider instance of the bootstrap.
func (d *decoder) certInstance(m interface {
	GetInstanceName() string
	GetCertificateName() string
}, use CertUse, p *path) picker.CertInstance {
	p = p.dot("instance_name")
	name := p.nonEmpty(m.GetInstanceName())
	if d.opt.CertProvider == nil {
		p.refuse(name, "must be an instance of the bootstrap's certificate_providers: there are none")
	} else if err := d.opt.CertProvider(name, use); name != "" && err != nil {
		p.refuse(name, clip(err.Error(), maxRule))
	}
	return picker.CertInstance{Instance: name, CertName: m.GetCertificateName()}
}
