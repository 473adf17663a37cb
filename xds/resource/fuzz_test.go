// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// FuzzEndpoints compares the decoding of an EDS resource with the oracle, and with its decoding
// after another version, with or without DNS names as addresses.
func FuzzEndpoints(f *testing.F) {
	fields := readFields(f)
	rnd := rand.New(rand.NewPCG(1, 2))
	last := []byte(nil)
	add := func(b []byte) {
		f.Add(b, last, false)
		f.Add(b, b, true)
		f.Add(slices.Concat(b, b), b, true) // merges the two
		last = b
	}
	for range 40 {
		m := randomAssignment(rnd)
		nameEndpoints(rnd, m)
		add(encode(f, m))
	}
	for _, c := range oneofCases() {
		add(c.value)
	}
	files, err := filepath.Glob("testdata/istio/*-eds.json")
	kit.Must(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(f, err)
		var list []json.RawMessage
		kit.Must(f, json.Unmarshal(text, &list))
		for _, m := range list {
			add(fromJSON(f, EndpointsType, string(m)))
		}
	}
	f.Fuzz(func(t *testing.T, value, before []byte, names bool) {
		m := new(endpointv3.ClusterLoadAssignment)
		if proto.Unmarshal(value, m) == nil && strings.Contains(fmt.Sprint(m), "nan") {
			return // metadata that is not equal to itself
		}
		opt := Options{AcceptHostnames: names}
		var got *Endpoints
		var err error
		kit.Spend(t, 128*len(value)+64<<10, func() { got, err = decodeEndpoints(value, opt, stopper{}) })
		compareEndpoints(t, fields, "fuzzed", value, names)
		opt.Previous, _ = decodeEndpoints(before, opt, stopper{})
		next, nextErr := decodeEndpoints(value, opt, stopper{})
		if fmt.Sprint(nextErr) != fmt.Sprint(err) {
			t.Fatalf("error %v with the previous version, want %v", nextErr, err)
		}
		if err != nil {
			checkErrorSize(t, err)
			return
		}
		checkIncremental(t, "fuzzed", opt.Previous, next, got)
		opt.Previous = next
		if again, err := decodeEndpoints(value, opt, stopper{}); again != next {
			t.Errorf("the same bytes are not the same as before: %+v, %v, want %+v", again, err, next)
		}
	})
}

// checkErrorSize checks an error, which goes to the control plane: at most 32 entries of 2048 bytes,
// after the name of the resource.
func checkErrorSize(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); len(text) > 1<<18+32*2048 {
		t.Errorf("the error has %d bytes: %.200s", len(text), text)
	}
}

// bytesSource is a source of random numbers from fuzzed bytes, then from others.
type bytesSource struct {
	b    []byte
	rest rand.PCG
}

// Uint64 implements rand.Source. Each bit of the byte is among the first and the last bits.
func (s *bytesSource) Uint64() uint64 {
	if len(s.b) == 0 {
		return s.rest.Uint64()
	}
	first := s.b[0]
	s.b = s.b[1:]
	return uint64(first) * 0x0101_0101_0101_0101
}

// FuzzEndpointUpdates is TestIncrementalDecoding with histories from fuzzed bytes.
func FuzzEndpointUpdates(f *testing.F) {
	for kind := range byte(8) {
		f.Add(slices.Repeat([]byte{40, 9, 200, 11 * kind}, 10), kind)
	}
	f.Fuzz(func(t *testing.T, b []byte, run byte) {
		decodeHistory(t, rand.New(&bytesSource{b: b}), int(run), 6)
	})
}

// acceptable applies the rules of A29, A82 and A101 to TLS settings, except for name matchers,
// and returns the sources of roots and identity.
func acceptable(m *tlsv3.UpstreamTlsContext) (roots, identity string, ok bool) {
	c := m.GetCommonTlsContext()
	combined := c.GetCombinedValidationContext()
	v, old := c.GetValidationContext(), c.GetValidationContextCertificateProviderInstance()
	if combined != nil {
		v, old = combined.GetDefaultValidationContext(), combined.GetValidationContextCertificateProviderInstance()
	}
	ok = len(m.GetSni()) <= 255 && c != nil && c.GetTlsParams() == nil && c.GetCustomHandshaker() == nil &&
		len(v.GetVerifyCertificateSpki())+len(v.GetVerifyCertificateHash()) == 0 && !v.GetRequireSignedCertificateTimestamp().GetValue() &&
		v.GetCrl() == nil && v.GetCustomValidatorConfig() == nil && (len(v.GetMatchTypedSubjectAltNames()) == 0 || len(v.GetMatchSubjectAltNames()) > 0)
	switch {
	case c.GetTlsCertificateProviderInstance() != nil:
		identity = c.GetTlsCertificateProviderInstance().GetInstanceName()
		ok = ok && onlyDefault(identity, identityCert) == nil
	case c.GetTlsCertificateCertificateProviderInstance() != nil:
		identity = c.GetTlsCertificateCertificateProviderInstance().GetInstanceName()
		ok = ok && onlyDefault(identity, identityCert) == nil
	default:
		ok = ok && len(c.GetTlsCertificates())+len(c.GetTlsCertificateSdsSecretConfigs()) == 0
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
	return roots, identity, ok
}

// FuzzUpstreamTLS compares the decoding of a cluster's TLS settings with the rules as they are
// written.
func FuzzUpstreamTLS(f *testing.F) {
	seeds := []string{tlsCluster(``), validation(`, "crl": {}`), validation(`, "requireSignedCertificateTimestamp": true`), commonTLS(`"validationContext": {"systemRootCerts": {}}`)}
	for _, tt := range acceptedTLS() {
		seeds = append(seeds, tt.json)
	}
	for _, text := range seeds {
		m := new(clusterv3.Cluster)
		kit.Must(f, proto.Unmarshal(fromJSON(f, ClusterType, text), m))
		f.Add(m.GetTransportSocket().GetTypedConfig().GetValue())
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		cluster := new(clusterv3.Cluster)
		kit.Must(t, proto.Unmarshal(fromJSON(t, ClusterType, validation(``)), cluster))
		cluster.TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: cluster.TransportSocket.GetTypedConfig().TypeUrl, Value: value}}
		b := encode(t, cluster)
		var v any
		var err error
		kit.Spend(t, 512*len(b)+256<<10, func() { v, err = Decode(ClusterType, b, Options{CertProvider: onlyDefault}) })
		m := new(tlsv3.UpstreamTlsContext)
		malformed := proto.Unmarshal(value, m)
		roots, identity, ok := acceptable(m)
		if err != nil {
			checkErrorSize(t, err)
			names := len(m.GetCommonTlsContext().GetValidationContext().GetMatchSubjectAltNames()) +
				len(m.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext().GetMatchSubjectAltNames())
			if malformed == nil && ok && names == 0 {
				t.Fatalf("%v\nis refused: %v", m, err)
			}
			return
		}
		tls := v.(*Cluster).TLS
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

const wrapperURL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// FuzzUnwrap decodes one entry of a response, plain or wrapped in a Resource, to its name and
// to the type of its URL (T-XDS-12, T-XDS-13).
func FuzzUnwrap(f *testing.F) {
	entries := []*anypb.Any{
		pack(f, &listenerv3.Listener{Name: "l"}), pack(f, &routev3.RouteConfiguration{Name: "r"}), pack(f, &clusterv3.Cluster{Name: "c"}), pack(f, &endpointv3.ClusterLoadAssignment{ClusterName: "e"}),
		{TypeUrl: EndpointsType.URL(), Value: []byte{0x80}},                  // malformed
		{TypeUrl: EndpointsType.URL(), Value: []byte("\x0a\x01\xff")},        // a name that is not UTF-8
		{TypeUrl: EndpointsType.URL(), Value: []byte("\x0a\x01a\x0a\x02bb")}, // the last name counts
		{TypeUrl: "type.googleapis.com/envoy.api.v2.Cluster"},                // of another version
		{TypeUrl: "envoy.config.cluster.v3.Cluster"},                         // no prefix
		pack(f, new(discoveryv3.Resource)),                                   // nothing in it
		pack(f, &discoveryv3.Resource{Name: "e", Resource: new(anypb.Any)}),  // nothing in that
	}
	for _, a := range entries {
		f.Add(a.TypeUrl, a.Value)
		once := pack(f, &discoveryv3.Resource{Name: "other", Version: "1", Resource: a})
		f.Add(once.TypeUrl, once.Value)
		twice := pack(f, &discoveryv3.Resource{Resource: once}) // the second wrapper is of no type that there is
		f.Add(twice.TypeUrl, twice.Value)
	}
	halves := append(encode(f, &discoveryv3.Resource{Resource: &anypb.Any{TypeUrl: EndpointsType.URL()}}),
		encode(f, &discoveryv3.Resource{Resource: &anypb.Any{Value: entries[3].Value}})...)
	f.Add(wrapperURL, halves) // are merged
	f.Fuzz(func(t *testing.T, url string, value []byte) {
		entry := &anypb.Any{TypeUrl: url, Value: value}
		gotURL, got, err := Unwrap(entry)
		wantURL, want := url, value
		wrapper := new(discoveryv3.Resource)
		known := url != wrapperURL
		if url == wrapperURL && proto.Unmarshal(value, wrapper) == nil {
			known, wantURL, want = true, wrapper.GetResource().GetTypeUrl(), wrapper.GetResource().GetValue()
			if (err != nil) != (wrapper.Resource == nil) {
				t.Fatalf("%v\nerror is %v", wrapper, err)
			}
		}
		if err == nil && known && (gotURL != wantURL || !bytes.Equal(got, want)) {
			t.Fatalf("Unwrap = %q, %q, want %q, %q", gotURL, got, wantURL, want)
		}
		if err != nil {
			return
		}
		typ, ok := TypeOf(gotURL)
		if ok && typ.URL() != gotURL {
			t.Fatalf("TypeOf(%q) = %v, %v", gotURL, typ, ok)
		}
		if ok {
			checkName(t, typ, got)
		}
	})
}

// checkName compares Name with the generated type's, and with Decode's opinion.
func checkName(t *testing.T, typ Type, value []byte) {
	t.Helper()
	name, err := Name(typ, value)
	if (err == nil) != (name != "") {
		t.Fatalf("Name(%v) = %q, %v", typ, name, err)
	}
	m := newMessage(typ)
	if proto.Unmarshal(value, m) == nil {
		field := m.ProtoReflect().Descriptor().Fields().ByNumber(1)
		if want := m.ProtoReflect().Get(field).String(); name != want {
			t.Fatalf("Name(%v) = %q, %v, want %q", typ, name, err, want)
		}
	}
	if _, decodeErr := Decode(typ, value, Options{}); decodeErr == nil && err != nil {
		t.Fatalf("Name(%v) = %v for a valid resource", typ, err)
	} else if decodeErr != nil {
		checkErrorSize(t, decodeErr)
	}
}
