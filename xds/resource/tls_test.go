// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// onlyDefault is a bootstrap with the one instance "default", which has both roots and
// an identity, and "identity", which has no roots.
func onlyDefault(instance string, use CertUse) error {
	if instance == "default" || instance == "identity" && use == identityCert {
		return nil
	}
	return errors.New("must be known")
}

// tlsCluster is an EDS cluster with an UpstreamTlsContext.
func tlsCluster(fields string) string {
	return `{"name": "c", "type": "EDS", ` + ads + `, "transportSocket": {"name": "envoy.transport_sockets.tls", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"` + fields + `}}}`
}

// commonTLS is a CommonTlsContext.
func commonTLS(fields string) string { return tlsCluster(`, "commonTlsContext": {` + fields + `}`) }

// validation is a CertificateValidationContext with the roots of instance "default".
func validation(fields string) string {
	return commonTLS(`"validationContext": {"caCertificateProviderInstance": {"instanceName": "default"}` + fields + `}`)
}

// TestTLS checks that the TLS settings of A29, A82 and A101 are converted, from the new fields
// and the deprecated ones, and that ignored fields are ignored.
func TestTLS(t *testing.T) {
	for _, tt := range acceptedTLS() {
		got := decodeAs[*Cluster](t, ClusterType, tt.json).TLS
		if !equalTLS(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

type tlsCase struct {
	name, json string
	want       *picker.TLS
}

// acceptedTLS are clusters and their TLS settings.
func acceptedTLS() []tlsCase {
	roots := picker.CertInstance{Instance: "default"}
	with := func(change func(t *picker.TLS)) *picker.TLS {
		v := &picker.TLS{Roots: roots}
		change(v)
		return v
	}
	const old = `"instanceName": "default", "certificateName": "ROOTCA"`
	return []tlsCase{
		{"no socket", `{"name": "c", "type": "EDS", ` + ads + `}`, nil},
		{"roots alone", validation(``), with(func(*picker.TLS) {})},
		{"a certificate name", commonTLS(`"validationContext": {"caCertificateProviderInstance": {` + old + `}}`), with(func(t *picker.TLS) { t.Roots.CertName = "ROOTCA" })},
		{"an identity", commonTLS(`"tlsCertificateProviderInstance": {"instanceName": "identity", "certificateName": "x"}, "validationContext": {"caCertificateProviderInstance": {"instanceName": "default"}}`),
			with(func(t *picker.TLS) { t.Identity = picker.CertInstance{Instance: "identity", CertName: "x"} })},
		{"an identity beside what would be refused alone", commonTLS(`"tlsCertificateProviderInstance": {"instanceName": "identity"}, "tlsCertificates": [{}], "tlsCertificateSdsSecretConfigs": [{}],
			"validationContext": {"caCertificateProviderInstance": {"instanceName": "default"}}`), with(func(t *picker.TLS) { t.Identity.Instance = "identity" })},
		{"a combined context", commonTLS(`"combinedValidationContext": {"defaultValidationContext": {"caCertificateProviderInstance": {"instanceName": "default"}, "matchSubjectAltNames": [{"exact": "a"}]}}`),
			with(func(t *picker.TLS) { t.SANs = []picker.StringMatch{{Kind: picker.MatchExact, Value: "a"}} })},
		{"the deprecated fields", commonTLS(`"tlsCertificateCertificateProviderInstance": {"instanceName": "identity"}, "validationContextCertificateProviderInstance": {` + old + `}`),
			with(func(t *picker.TLS) { t.Roots.CertName, t.Identity.Instance = "ROOTCA", "identity" })},
		{"the deprecated fields, combined", commonTLS(`"combinedValidationContext": {"defaultValidationContext": {"matchSubjectAltNames": [{"suffix": "b"}]}, "validationContextCertificateProviderInstance": {` + old + `}}`),
			with(func(t *picker.TLS) {
				t.Roots.CertName, t.SANs = "ROOTCA", []picker.StringMatch{{Kind: picker.MatchSuffix, Value: "b"}}
			})},
		{"new fields before deprecated ones", commonTLS(`"tlsCertificateCertificateProviderInstance": {"instanceName": "gone"}, "tlsCertificateProviderInstance": {"instanceName": "default"},
			"combinedValidationContext": {"defaultValidationContext": {"caCertificateProviderInstance": {"instanceName": "default"}}, "validationContextCertificateProviderInstance": {"instanceName": "gone"}}`),
			with(func(t *picker.TLS) { t.Identity.Instance = "default" })},
		{"A82", commonTLS(`"validationContext": {"systemRootCerts": {}}`), &picker.TLS{SystemRoots: true}},
		{"A82: an instance counts before the system's", validation(`, "systemRootCerts": {}`), with(func(*picker.TLS) {})},
		{"names", validation(`, "matchSubjectAltNames": [{"exact": "a"}, {"prefix": "B", "ignoreCase": true}, {"contains": "c"}, {"safeRegex": {"regex": "d+"}}]`),
			with(func(t *picker.TLS) {
				t.SANs = []picker.StringMatch{{Kind: picker.MatchExact, Value: "a"}, {Kind: picker.MatchPrefix, Value: "B", IgnoreCase: true},
					{Kind: picker.MatchContains, Value: "c"}, {Kind: picker.MatchRegex, Regex: regexp.MustCompile(`^(?:d+)$`)}}
			})},
		{"A101", tlsCluster(`, "sni": "` + strings.Repeat("s", 255) + `", "autoHostSni": true, "autoSniSanValidation": true, "commonTlsContext": {"validationContext": {"caCertificateProviderInstance": {"instanceName": "default"}}}`),
			with(func(t *picker.TLS) {
				t.ServerName, t.AutoHostName, t.MatchServerName = strings.Repeat("s", 255), true, true
			})},
		{"ignored", tlsCluster(`, "allowRenegotiation": true, "maxSessionKeys": 3, "enforceRsaKeyUsage": true, "commonTlsContext": {"alpnProtocols": ["x"], "keyLog": {}, "validationContext": {
			"trustedCa": {"filename": "x"}, "watchedDirectory": {}, "allowExpiredCertificate": true, "trustChainVerification": "ACCEPT_UNTRUSTED", "requireSignedCertificateTimestamp": false,
			"caCertificateProviderInstance": {"instanceName": "default"}}}`), with(func(*picker.TLS) {})},
	}
}

// equalTLS compares regular expressions by their text.
func equalTLS(a, b *picker.TLS) bool {
	text := func(t *picker.TLS) (sans []string) {
		for i, m := range t.SANs {
			if m.Regex != nil {
				sans = append(sans, m.Regex.String())
				t.SANs[i].Regex = nil
			}
		}
		return sans
	}
	return a == nil && b == nil || a != nil && b != nil && reflect.DeepEqual(text(a), text(b)) && reflect.DeepEqual(a, b)
}

// TestTLSRefused: A29, A82, A86, A101. Each NACK names the field.
func TestTLSRefused(t *testing.T) {
	const (
		socket  = `transport_socket`
		context = socket + `.typed_config`
		common  = context + `.common_tls_context`
		certs   = common + `.validation_context`
	)
	long := strings.Repeat("s", 256)
	tests := []struct{ name, json, path, rule string }{
		{"matches", `{"name": "c", "type": "EDS", ` + ads + `, "transportSocketMatches": [{"name": "x"}]}`, `transport_socket_matches`, "must be empty"},
		{"a matcher", `{"name": "c", "type": "EDS", ` + ads + `, "transportSocketMatcher": {}}`, `transport_socket_matcher`, "must not be set"},
		{"an aggregate too", `{"name": "c", "clusterType": {"typedConfig": {"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["a"]}}, "transportSocketMatches": [{}]}`,
			`transport_socket_matches`, "must be empty"},
		{"A86: a proxy", `{"name": "c", "type": "EDS", ` + ads + `, "transportSocket": {"name": "envoy.transport_sockets.http_11_proxy", "typedConfig": {"@type": "type.googleapis.com/envoy.config.core.v3.Node"}}}`,
			socket + `.name`, "must be envoy.transport_sockets.tls"},
		{"plaintext by name", `{"name": "c", "type": "EDS", ` + ads + `, "transportSocket": {"name": "envoy.transport_sockets.raw_buffer"}}`, socket + `.name`, "must be envoy.transport_sockets.tls"},
		{"no name", strings.Replace(validation(``), `"name": "envoy.transport_sockets.tls", `, ``, 1), socket + `.name`, "must be envoy.transport_sockets.tls"},
		{"no configuration", `{"name": "c", "type": "EDS", ` + ads + `, "transportSocket": {"name": "envoy.transport_sockets.tls"}}`, context, "must be set"},
		{"another type", `{"name": "c", "type": "EDS", ` + ads + `, "transportSocket": {"name": "envoy.transport_sockets.tls", "typedConfig": {"@type": "type.googleapis.com/envoy.config.core.v3.Node"}}}`,
			context, "must be of type envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"},
		{"A101", tlsCluster(`, "sni": "` + long + `", "commonTlsContext": {"validationContext": {"systemRootCerts": {}}}`), context + `.sni`, "must be at most 255 bytes long"},
		{"no common context", tlsCluster(``), common, "must be set"},
		{"parameters", commonTLS(`"tlsParams": {}, "validationContext": {"systemRootCerts": {}}`), common + `.tls_params`, "must not be set"},
		{"a handshaker", commonTLS(`"customHandshaker": {"name": "x"}, "validationContext": {"systemRootCerts": {}}`), common + `.custom_handshaker`, "must not be set"},
		{"certificates in the resource", commonTLS(`"tlsCertificates": [{}], "validationContext": {"systemRootCerts": {}}`), common + `.tls_certificates`, "must be empty"},
		{"certificates by SDS", commonTLS(`"tlsCertificateSdsSecretConfigs": [{}], "validationContext": {"systemRootCerts": {}}`), common + `.tls_certificate_sds_secret_configs`, "must be empty"},
		{"an identity without a name", commonTLS(`"tlsCertificateProviderInstance": {}, "validationContext": {"systemRootCerts": {}}`), common + `.tls_certificate_provider_instance.instance_name`, "must not be empty"},
		{"an identity that is not there", commonTLS(`"tlsCertificateProviderInstance": {"instanceName": "x"}, "validationContext": {"systemRootCerts": {}}`), common + `.tls_certificate_provider_instance.instance_name`, `must be known (it is "x")`},
		{"a deprecated one", commonTLS(`"tlsCertificateCertificateProviderInstance": {"instanceName": "x"}, "validationContext": {"systemRootCerts": {}}`),
			common + `.tls_certificate_certificate_provider_instance.instance_name`, `must be known (it is "x")`},
		{"no validation", commonTLS(``), certs, "must be set"},
		{"validation by SDS", commonTLS(`"validationContextSdsSecretConfig": {}`), common + `.validation_context_sds_secret_config`, "must not be set"},
		{"a provider in the resource", commonTLS(`"validationContextCertificateProvider": {"name": "x"}`), certs, "must be set"},
		{"no roots", commonTLS(`"validationContext": {"trustedCa": {"filename": "x"}}`), certs, "must have ca_certificate_provider_instance or system_root_certs"},
		{"combined, with nothing", commonTLS(`"combinedValidationContext": {}`), common + `.combined_validation_context.default_validation_context`, "must have ca_certificate_provider_instance or system_root_certs"},
		{"roots without a name", commonTLS(`"validationContext": {"caCertificateProviderInstance": {}}`), certs + `.ca_certificate_provider_instance.instance_name`, "must not be empty"},
		{"roots of an instance without", commonTLS(`"validationContext": {"caCertificateProviderInstance": {"instanceName": "identity"}}`), certs + `.ca_certificate_provider_instance.instance_name`, `must be known (it is "identity")`},
		{"deprecated roots", commonTLS(`"validationContextCertificateProviderInstance": {"instanceName": "x"}`), common + `.validation_context_certificate_provider_instance.instance_name`, "must be known"},
		{"keys", validation(`, "verifyCertificateSpki": ["x"]`), certs + `.verify_certificate_spki`, "must not be set"},
		{"hashes", validation(`, "verifyCertificateHash": ["x"]`), certs + `.verify_certificate_hash`, "must not be set"},
		{"timestamps", validation(`, "requireSignedCertificateTimestamp": true`), certs + `.require_signed_certificate_timestamp`, "must not be set"},
		{"revocation", validation(`, "crl": {"filename": "x"}`), certs + `.crl`, "must not be set"},
		{"a validator", validation(`, "customValidatorConfig": {"name": "x"}`), certs + `.custom_validator_config`, "must not be set"},
		{"also with deprecated roots", commonTLS(`"combinedValidationContext": {"defaultValidationContext": {"crl": {"filename": "x"}}, "validationContextCertificateProviderInstance": {"instanceName": "default"}}`),
			common + `.combined_validation_context.default_validation_context.crl`, "must not be set"},
		{"an empty matcher", validation(`, "matchSubjectAltNames": [{"exact": "a"}, {}]`), certs + `.match_subject_alt_names[1]`, "must have exact"},
		{"an empty prefix", validation(`, "matchSubjectAltNames": [{"prefix": ""}]`), certs + `.match_subject_alt_names[0].prefix`, "must not be empty"},
		{"a bad expression", validation(`, "matchSubjectAltNames": [{"safeRegex": {"regex": "("}}]`), certs + `.match_subject_alt_names[0].safe_regex`, "missing closing"},
		{"names that gRPC does not read", validation(`, "matchTypedSubjectAltNames": [{"sanType": "DNS", "matcher": {"exact": "a"}}]`), certs + `.match_typed_subject_alt_names`, "must not be set without"},
	}
	matcher := `{"safeRegex": {"regex": "` + strings.Repeat("[ab]?", 200) + `"}}` // about 1000 instructions
	tests = append(tests, struct{ name, json, path, rule string }{
		"expressions, equal ones", validation(`, "matchSubjectAltNames": [` + matcher + strings.Repeat(`, `+matcher, 100) + `]`), certs + `.match_subject_alt_names[`, "must, with the other expressions of the field, compile to at most",
	})
	decodeAs[*Cluster](t, ClusterType, validation(`, "matchSubjectAltNames": [`+matcher+strings.Repeat(`, `+matcher, 20)+`]`))
	for _, tt := range tests {
		_, err := Decode(ClusterType, fromJSON(t, ClusterType, tt.json), Options{CertProvider: onlyDefault})
		var refusal *resourceError
		ok := errors.As(err, &refusal)
		switch {
		case !ok:
			t.Errorf("%s: error %v, want a refusal", tt.name, err)
		case !strings.HasPrefix(refusal.Errors[0].Path, tt.path) || !strings.Contains(refusal.Errors[0].String(), tt.rule):
			t.Errorf("%s: %v, want %s: %s", tt.name, refusal, tt.path, tt.rule)
		}
	}
	if _, err := Decode(ClusterType, fromJSON(t, ClusterType, validation("")), Options{}); err == nil {
		t.Error("an instance is accepted without a bootstrap")
	}
}
