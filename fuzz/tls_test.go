// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"errors"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// tlsSeeds are TLS settings, each with one thing in it that matters.
func tlsSeeds() []*tlsv3.UpstreamTlsContext {
	instance := &tlsv3.CertificateProviderPluginInstance{InstanceName: "default", CertificateName: "ROOTCA"}
	old := &tlsv3.CommonTlsContext_CertificateProviderInstance{InstanceName: "default"}
	with := func(change func(*tlsv3.CommonTlsContext, *tlsv3.CertificateValidationContext)) *tlsv3.UpstreamTlsContext {
		v := &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: instance}
		c := &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}}
		change(c, v)
		return &tlsv3.UpstreamTlsContext{CommonTlsContext: c, Sni: "a.example", AutoHostSni: true}
	}
	type (
		common = tlsv3.CommonTlsContext
		valid  = tlsv3.CertificateValidationContext
	)
	return []*tlsv3.UpstreamTlsContext{
		{},
		with(func(*common, *valid) {}),
		with(func(c *common, _ *valid) { c.TlsCertificateProviderInstance = instance }),
		with(func(c *common, _ *valid) { c.TlsCertificateCertificateProviderInstance = old }),
		with(func(c *common, _ *valid) { c.TlsCertificates = []*tlsv3.TlsCertificate{{}} }),
		with(func(c *common, _ *valid) { c.TlsParams = &tlsv3.TlsParameters{} }),
		with(func(c *common, _ *valid) {
			c.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextCertificateProviderInstance{ValidationContextCertificateProviderInstance: old}
		}),
		with(func(c *common, v *valid) {
			v.CaCertificateProviderInstance = nil
			c.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: v, ValidationContextCertificateProviderInstance: old}}
		}),
		with(func(_ *common, v *valid) {
			v.CaCertificateProviderInstance, v.SystemRootCerts = nil, &tlsv3.CertificateValidationContext_SystemRootCerts{}
		}),
		with(func(_ *common, v *valid) { v.VerifyCertificateHash = []string{"x"} }),
		with(func(_ *common, v *valid) { v.RequireSignedCertificateTimestamp = wrapperspb.Bool(true) }),
		with(func(_ *common, v *valid) {
			v.MatchSubjectAltNames = []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "a"}}, {MatchPattern: &matcherv3.StringMatcher_Prefix{}}}
		}),
	}
}

// acceptable applies the rules of A29, A82 and A101 to TLS settings, except for name matchers,
// and returns the sources of roots and identity.
func acceptable(m *tlsv3.UpstreamTlsContext) (roots, identity string, ok bool) {
	c := m.GetCommonTlsContext()
	combined := c.GetCombinedValidationContext()
	v := c.GetValidationContext()
	if combined != nil {
		v = combined.GetDefaultValidationContext()
	}
	ok = len(m.GetSni()) <= 255 && c != nil && c.GetTlsParams() == nil && c.GetCustomHandshaker() == nil &&
		len(v.GetVerifyCertificateSpki())+len(v.GetVerifyCertificateHash()) == 0 && !v.GetRequireSignedCertificateTimestamp().GetValue() &&
		v.GetCrl() == nil && v.GetCustomValidatorConfig() == nil
	switch {
	case c.GetTlsCertificateProviderInstance() != nil:
		identity = c.GetTlsCertificateProviderInstance().GetInstanceName()
		ok = ok && identity == "default"
	case c.GetTlsCertificateCertificateProviderInstance() != nil:
		identity = c.GetTlsCertificateCertificateProviderInstance().GetInstanceName()
		ok = ok && identity == "default"
	default:
		ok = ok && len(c.GetTlsCertificates())+len(c.GetTlsCertificateSdsSecretConfigs()) == 0
	}
	old := combined.GetValidationContextCertificateProviderInstance()
	if combined == nil {
		old = c.GetValidationContextCertificateProviderInstance()
	}
	switch {
	case v.GetCaCertificateProviderInstance() != nil:
		roots = v.GetCaCertificateProviderInstance().GetInstanceName()
		ok = ok && roots == "default"
	case v.GetSystemRootCerts() != nil:
	default:
		roots = old.GetInstanceName()
		ok = ok && roots == "default"
	}
	return roots, identity, ok && (len(v.GetMatchTypedSubjectAltNames()) == 0 || len(v.GetMatchSubjectAltNames()) > 0)
}

// FuzzUpstreamTLS decodes the TLS settings of a cluster, and compares with the rules as
// they are written.
func FuzzUpstreamTLS(f *testing.F) {
	for _, m := range tlsSeeds() {
		f.Add(encode(f, m))
	}
	opts := resource.Options{CertProvider: func(instance string, _ resource.CertUse) error {
		if instance != "default" {
			return errors.New("must be known")
		}
		return nil
	}}
	f.Fuzz(func(t *testing.T, value []byte) {
		cluster := xdstest.Cluster("c", "s")
		cluster.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", Value: value}}}
		b := encode(t, cluster)
		var v any
		var err error
		spend(t, 512*len(b)+256<<10, func() { v, err = resource.Decode(resource.ClusterType, b, opts) })
		m := new(tlsv3.UpstreamTlsContext)
		malformed := proto.Unmarshal(value, m)
		roots, identity, ok := acceptable(m)
		if err != nil {
			checkRefusal(t, err)
			names := len(m.GetCommonTlsContext().GetValidationContext().GetMatchSubjectAltNames()) +
				len(m.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext().GetMatchSubjectAltNames())
			if malformed == nil && ok && names == 0 {
				t.Fatalf("%v\nis refused: %v", m, err)
			}
			return
		}
		tls := v.(*resource.Cluster).TLS
		if malformed != nil || !ok || tls == nil {
			t.Fatalf("%v (%v)\nis accepted as %+v", m, malformed, tls)
		}
		if tls.Roots.Instance != roots || tls.Identity.Instance != identity || tls.SystemRoots != (roots == "") || tls.ServerName != m.GetSni() ||
			tls.AutoHostName != m.GetAutoHostSni() || tls.MatchServerName != m.GetAutoSniSanValidation() {
			t.Errorf("%v\nis decoded to %+v", m, tls)
		}
		for i := range tls.SANs {
			if s := &tls.SANs[i]; s.Kind != picker.MatchRegex && !s.Matches(s.Value) {
				t.Errorf("%+v does not match itself", s)
			}
		}
	})
}
