#!/usr/bin/env bash
# Copyright 2026 The xdslb Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs grpc-go's own black-box xDS end-to-end tests against this checkout:
#
#	run.sh [group ...]     client ringhash cluster load tls security empty retry fallback; all by default
#
# The retry test runs three times: unchanged, with routes that match by a header, so
# that our interceptors make the retries, and then with streams: see retry.go.txt.
#
# `make conformance` runs all groups, which takes about two minutes. It copies grpc-go
# from the module cache and adds shim.go.txt, so that the tests' hooks return our
# resolver and all channels have our interceptors. Host names and empty hosts in the
# tests' EDS resources are replaced by an IP literal, which A27 requires (A27-CLA-11;
# grpc-go dials ":port" otherwise). The output is one line per group, the names of
# failed tests, and a total; the exit code is 1 after a failure. WORK is the directory
# for the copy and the logs, RUN selects other tests of a group. With DELTA=1 our
# clients use incremental ADS, and bridge.go.txt makes it visible to the tests.
#
# VERSION=v1.84.0 uses the tests of another grpc-go version, and builds with it: see
# integrate/docs/rollout.md.
#
# The timeout of tests is 20 s instead of 10, since the machine may be shared.
#
# Excluded are grpc-go's tests that use internals of its own resolver, balancers
# or filters (fault injection tests replace its timers and random numbers), and tests
# of servers, RLS and HTTP CONNECT. README.md lists the excluded TLS tests with reasons.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
work=${WORK:-${TMPDIR:-/tmp}/xdslb-conformance}
groups=${*:-client ringhash cluster load tls security empty retry fallback}
version=${VERSION:-$(cd "$checkout" && go list -m -f '{{.Version}}' google.golang.org/grpc)}
[ -z "${VERSION:-}" ] || export GOFLAGS="${GOFLAGS:-} -tags=xdslb_oldgrpc"
source=$(cd "$checkout" && go mod download -json "google.golang.org/grpc@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
tree=$work/grpc
mkdir -p "$work"
rm -rf "$tree"
cp -r "$source" "$tree"
chmod -R u+w "$tree"
grep -rl '"localhost"' "$tree"/{test/xds,internal/testutils/xds,balancer/ringhash,internal/xds} --include='*.go' |
	xargs -r sed -i 's/"localhost"/"127.0.0.1"/g'
sed -i 's/^func EndpointResourceWithOptions(opts EndpointOptions).*{$/&\n\tif opts.Host == "" {\n\t\topts.Host = "127.0.0.1"\n\t}/' "$tree/internal/testutils/xds/e2e/clientresources.go"
# In A75 the leaf's policy applies, not the aggregate's, as grpc-go's test notes.
sed -i '/^func (s) TestRingHash_AggregateClusterFallBackFromRingHashAtStartup/,/^}/s/^\(\t*\)ServiceName: \(primary\|secondary\)ServiceName,$/&\n\1Policy: e2e.LoadBalancingPolicyRingHash,/' "$tree/balancer/ringhash/ringhash_e2e_test.go"
sed -i 's/defaultTestTimeout  *= 10 \* time.Second/defaultTestTimeout = 20 * time.Second/' "$tree"/test/xds/*.go
# The TLS tests use our credentials instead of grpc-go's for clients.
grep -lE 'NewClientCredentials' "$tree"/{test/xds,internal/xds/balancer/clusterimpl/tests}/*_test.go | while read -r f; do
	sed -i -E 's/(xdscreds|xds)\.NewClientCredentials\(/ours.NewCredentials(/
		s/(xdscreds|xds)\.ClientOptions\{/ours.CredentialsOptions{/
		/ours.CredentialsOptions\{/,/\}/s/FallbackCreds: */Fallback: /
		s/^import \($/&\n\tours "github.com\/xdslb\/xdslb\/integrate"/' "$f"
	grep -qE 'xdscreds\.' "$f" || sed -i -E '/xdscreds "google.golang.org\/grpc\/credentials\/xds"/d' "$f"
	grep -qE '[^a-z]xds\.[A-Z]' "$f" || sed -i -E '/^\t"google.golang.org\/grpc\/credentials\/xds"/d' "$f"
done
cp "$here/shim.go.txt" "$tree/internal/xds/resolver/zz_shim.go"
cp "$here/retry.go.txt" "$tree/test/xds/zz_retry_test.go"
retries=$tree/test/xds/xds_client_retry_test.go
sed 's/^func (s) TestClientSideRetry(/func (s) TestClientSideRetryByHeader(/
	s/^\(\t*\)resources\(.*\)\.GetRoute()\.RetryPolicy = .*/&\n\1resources\2.Match.Headers = withoutHeader/
	s/^func (s) Test.*/&\n\tbefore := retriesMade()/
	s/^}$/\tretriesSince(t, before)\n}/' "$retries" >"$tree/test/xds/zz_retry_header_test.go"
sed 's/TestClientSideRetryByHeader(/TestClientSideRetryOfStreams(/
	s/stubserver\.StartTestService(/startStreaming(/
	s/testgrpc\.NewTestServiceClient(cc)/streamingClient{&}/' "$tree/test/xds/zz_retry_header_test.go" >"$tree/test/xds/zz_retry_streams_test.go"
if [ -n "${DELTA:-}" ]; then
	export XDSLB_CONFORMANCE_DELTA=1
	cp "$here/bridge.go.txt" "$tree/internal/testutils/xds/e2e/zz_bridge.go"
	sed -i 's/v3server.NewServer(ctx, cache, callbacks)/v3server.NewServer(ctx, cache, withBridge(opts, callbacks))/' "$tree/internal/testutils/xds/e2e/server.go"
fi
cd "$tree"
if [ -n "${VERSION:-}" ]; then # our go.mod would ask for a newer Go
	rm -rf "$work/xdslb"
	cp -r "$checkout" "$work/xdslb"
	cp "$checkout/.ci/oldest.mod" "$work/xdslb/go.mod"
	cp "$checkout/.ci/oldest.sum" "$work/xdslb/go.sum"
	checkout=$work/xdslb
fi
go mod edit -require=github.com/xdslb/xdslb@v0.0.0 -replace=github.com/xdslb/xdslb="$checkout"
go mod tidy >"$work/tidy.log" 2>&1 || { tail -3 "$work/tidy.log"; exit 1; }

client='ClientResourceVersionAfterStreamRestart|ClientSideAffinitySanityCheck|WrrLocality|ClientSideFederation|ClientSideFederationWithOnlyXDSTPStyleLDS|Federation_UnknownAuthorityInDialTarget|Federation_UnknownAuthorityInReceivedResponse|IgnoreResourceDeletionOnClient|ClientSideXDS|ClientSideXDS_RouteMatching_IgnoreIncomingMetadata|Client_ConcurrentRPC|OutlierDetection_NoopConfig|OutlierDetectionWithOutlier|OutlierDetectionXDSDefaultOn|ClientSideXDS_LocalityChangesPriority'
cluster='AggregateCluster_|ErrorFromParentLB_ConnectionError|ErrorFromParentLB_ResourceNotFound|LogicalDNS_MultipleEndpoints|EDS_OneLocality|EDS_MultipleLocalities|EDS_EndpointsHealth|EDS_EmptyUpdate|EDS_ResourceRemoved|EDS_ClusterResourceDoesNotContainEDSServiceName|EDS_ClusterResourceUpdates|EDS_BadUpdateWithoutPreviousGoodUpdate|EDS_BadUpdateWithPreviousGoodUpdate'
load='ConfigUpdateWithSameLoadReportingServerConfig|LoadReportingPickFirstMultiLocality|CircuitBreaking|DropByCategory|CircuitBreakingLogicalDNS|LRSLogicalDNS|ReResolutionAfterTransientFailure|UpdateLRSServerToNil|LoadReporting_CustomMetricsPropagation'
tls='ClientSideXDS_WithNo.*|ClientSideXDS_WithValid.*|ClientSideXDS_SNISANValidation|ClientSideXDS_AutoHostSNI.*|ClientSideXDS_FallbackSANMatchers|UnmarshalCluster_WithUpdateValidatorFunc|UnmarshalListener_WithUpdateValidatorFunc|ServerSideXDS_(Fallback|FileWatcherCerts|FileWatcherCertsSPIFFE|SecurityConfigChange)'
security='SecurityConfig.*|NoSecurityConfigWithXDSCreds|GoodSecurityConfig|AggregateClusterSecurityConfig|CertproviderStoreError|AuthorityOverridingWithTLS'

passed=0 failed=0
for g in $groups; do
	case $g in
	client) package=./test/xds/ run="^Test\$/^($client)\$" ;;
	ringhash) package=./balancer/ringhash/ run='^Test$/^RingHash_' ;;
	cluster) package=./internal/xds/balancer/cdsbalancer/e2e_test/ run="^Test\$/^($cluster)" ;;
	load) package=./internal/xds/balancer/clusterimpl/tests/ run="^Test\$/^($load)\$" ;;
	tls) package=./test/xds/ run="^Test\$/^($tls)\$" ;;
	security) package=./internal/xds/balancer/clusterimpl/tests/ run="^Test\$/^($security)\$" ;;
	empty) package=./xds/test/ run='^Test$/^EDS_NoEndpointsInResource$' ;;
	retry) package=./test/xds/ run='^Test$/^ClientSideRetry(ByHeader|OfStreams)?$' ;;
	fallback) package=./internal/xds/xdsclient/tests/fallback/ run='^Test$/^Fallback' ;;
	*) echo "unknown group $g"; exit 2 ;;
	esac
	log=$work/$g.log
	go test -count=1 -timeout 600s -v "$package" -run "${RUN:-$run}" >"$log" 2>&1 || true
	p=$(grep -cE '^ +--- PASS: Test/' "$log" || true)
	f=$(grep -cE '^ +--- FAIL: Test/' "$log" || true)
	grep -qE 'build failed|^panic:|setup failed' "$log" && f=$((f + 1)) && echo "$g: build failure or panic, see $log"
	passed=$((passed + p)) failed=$((failed + f))
	echo "$g: $p passed, $f failed"
	grep -E '^ +--- FAIL: Test/' "$log" || true
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
