// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package resource provides the decoding of xDS resources: from bytes to validated, immutable
// values without protobuf, or to an error that lists everything that is wrong with a resource.
//
// # Problem
//
// A control plane sends untrusted input that every client of a fleet receives at the same time.
// A panic here is an outage of the fleet, a rule that is too strict stops updates, a rule that
// is too lax sends requests to the wrong place, and a rejection without a reason costs an
// afternoon. On top of that, endpoints change all the time: a fleet of ten thousand that
// replaces its pods one by one sends ten thousand endpoints again for each of them.
//
// # Structure
//
//	Any ─Unwrap─ bytes ─Name─┬─ the same bytes as before: nothing to do
//	                         │
//	                         ├─ Decode ── proto.Unmarshal ──┬─ Listener           listener.go
//	                         │                              │    filters, Fault    filter.go, fault.go
//	                         │                              ├─ RouteConfig         listener.go
//	                         │                              │    routes            route.go, match.go, hash.go, retry.go
//	                         │                              ├─ Cluster             cluster.go, tls.go, outlier.go
//	                         │                              └─ unsupported fields  ignored.go
//	                         │
//	                         └─ decodeEndpoints(prev) ── protowire ── Endpoints    endpoints.go
//	                                                  localities and endpoints   endpoint.go, revision.go
//	                                                  unchanged bytes            wirechunk.go
//	                                                  from the wire              endpointfields.go, wire.go
//	                                                  their other fields         metadata.go, drop.go, unique.go
//
// Listeners, routes and clusters are small and rare, so they are decoded into the generated
// types. Every converter gets the path of its message and reports errors there. Conversion
// continues after an error, so that one resourceError lists all of them. The result of a conversion
// with an error is discarded, so converters may return anything in that case.
//
// Endpoints are read from the wire into their final arrays, with the previous version next to
// them. Unchanged parts are not even copied, and two versions can be compared by the addresses
// of the arrays. With proto.Unmarshal each endpoint is seven objects that are garbage a moment
// later: reading the wire takes a fifth of the time or less and a thousandth of the
// allocations (BenchmarkDecodeEndpoints). TestEndpointsOracle checks that the result is the same
// as with proto.Unmarshal, including its oddities.
//
// Endpoints whose bytes are unchanged are not decoded again: see wireChunk. If one of 5000 endpoints
// changes, is added or is removed, that takes a tenth of the time of decoding all. A resource with an
// error is decoded again without its previous version, so that errors do not depend on it.
// TestIncrementalDecoding and FuzzEndpointUpdates compare histories of versions with decoding
// each from scratch.
//
// # Accepted and rejected resources
//
// The rules are the rules of the gRFCs named below, in their latest form; where grpc-go
// differs, the gRFC takes precedence. Where the gRFCs have no rule, the rules of the field's
// proto apply, so that resources which Envoy would reject are rejected as well. Fields that no
// gRFC mentions are ignored (A27-UNK-1); the significant ones are reported (ignored.go). Some
// decisions:
//
//   - A Listener without api_listener is valid, and marked as a socket listener.
//   - A stateful session filter (A55) whose state is not in a cookie has no
//     effect, even where it is required. Filters are decoded here, and applied
//     by interceptors.
//   - Options.Filter has the rules for further HTTP filters.
//   - The transport_socket of a cluster is validated regardless of the credentials of the
//     channels, since the resource is shared by all of them (A29). Sockets other than TLS,
//     including A86's proxy, are rejected. So are server names in the typed field alone,
//     which gRPC does not read: an unknown field must not make a client trust more.
//     A82 and A101 are always enabled. The deprecated fields of provider instances apply
//     if the new ones are absent, as Istio's older releases need it.
//   - Routes that no RPC can match, or whose action gRPC does not know, are
//     skipped: routes with query parameters, with a condition on a binary header, with
//     a cluster from a header or plugin (A28). A route to anything but a cluster
//     is kept, and RPCs that match it fail.
//   - Header names are in lower case, regular expressions anchored, RE2
//     substitutions in Go's syntax, fractions in parts per million capped at
//     one, and defaults filled in. Settings that a virtual host makes for all its
//     routes are in each of them, which share the values.
//   - Unhealthy endpoints are skipped before they are validated, and likewise
//     localities without weight. Draining endpoints are kept and marked.
//   - Malformed bytes are rejected in all fields that are read, even in skipped
//     endpoints, except for the metadata of skipped endpoints.
//
// Load balancing policies are converted by xds/lbpolicy, as far as channels support them.
//
// # Bounds
//
// Memory is proportional to the input: at most 128 bytes per byte for endpoints, and 512 for
// the other types, which is the size of the generated types for a message full of empty
// messages (TestMemory). Anything that could grow faster has its own bound (T-SEC-2): a regular
// expression is at most 8 KiB long, and the expressions of a resource compile to at most 2^20
// instructions; load balancing policies nest at most 16 deep; an error has at most 32 entries
// and quotes at most 128 bytes of a text. Messages nest as deep as proto.Unmarshal allows, 10
// 000 levels.
//
// # Concurrency
//
// Functions are safe for concurrent use. A result is never modified after it has been returned,
// so results are safe to share, and so is prev.
//
// # How to add a field
//
//   - Listener: decoded by decoder.listener into Listener; it reaches picks through xds.newPlan,
//     dependencyManager.publishPlanLocked (compare), dependencyManager.deliverLocked (copy) into
//     picker.Config; sameRPCConfig in integrate/internal/balancer/apply.go if interceptors use
//     it.
//   - RouteConfiguration: decoded by decoder.route, decoder.virtualHost into picker.Route; it
//     reaches picks through picker.Config.Routes; rpc.planFor for interceptors.
//   - Cluster: decoded by decoder.cluster into Cluster; it reaches picks through xds.newLeaf
//     into picker.Leaf; balancer.leaf.configure applies changes.
//   - ClusterLoadAssignment: from the wire, decoded by endpointFields.parse,
//     endpointsDecoder.endpoint; it reaches picks through picker.Endpoint, or
//     picker.EndpointExtra for rare fields, since an endpoint has 48 bytes.
//
// A field of a locality is parsed by localityFields.parse (endpointfields.go) and decoded by
// endpointsDecoder.locality into picker.Locality, which has the Metadata already.
// picker.Locality.Same compares it. If it changes picks, groupInput.compare (picker/reuse.go) does
// too, and picker.builder.groups uses it; balancer.otherLocalities counts its changes for the event
// ConfigurationApplied. Priorities count endpoints only, and need no change.
//
// Metadata of an endpoint is copied by newExtra. A field of an endpoint has four more places,
// without which a change of this field alone is not noticed: the switch at the end of
// endpointsDecoder.endpoint (whether there is an EndpointExtra), endpointsDecoder.extra (reuse of
// the previous one), sameEndpoint (reordered lists), and balancer.endpoint.configure (effect on the
// live endpoint). Custom policies see it in balancer.EndpointInfo and its Equal. Status and
// explanations show it as a field of report.EndpointStatus, set by balancer.detail.endpoint, with
// its text in report.Located.Notes, which explanations, the debug page and the command use.
// balancer.noteEndpoint counts its changes for the event ConfigurationApplied.
//
// Other inputs of a leaf belong in xds.leafInputs, which is compared with !=: a list is a pointer
// there. Fields that Envoy applies and xdslb does not are rows of ignoredFields (ignored.go) and of
// integrate/docs/supported.md. TestEveryField fails if the messages gain an unknown field.
//
// # How to add a source of drop categories
//
// picker.Leaf.Drops is an ordered list, which all users follow. xds.newLeaf fills it from EDS
// (endpointsDecoder.drops). Append another source there, with its inputs in leafInputs, or a source
// of the channel in balancer.adaptation.cluster, with a case in adaptation.needsOwn.
//
// # Sources
//
// gRFC A27, A28, A29, A30, A31, A32, A33, A36, A37, A39, A41, A42, A44, A47, A50, A52, A55,
// A61, A63, A76, A81, A82, A85, A86 and A101 (https://github.com/grpc/proposal), and the
// comments of Envoy's protos. Ids such as A27-CLA-6 and T-RC-4 are explained in
// integrate/docs/requirements.tsv.
package resource
