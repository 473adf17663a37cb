// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package resource turns the bytes of an xDS resource into validated, immutable
// values without protobuf in them, or says everything that is wrong with it.
//
// # Problem
//
// What a control plane sends is foreign input that every client of a fleet gets
// at the same time. A panic here is an outage of the fleet, a rule that is too
// strict stops updates, one that is too lax sends requests to the wrong place,
// and a refusal that does not say why costs an afternoon. On top of that,
// endpoints change all the time: a fleet of ten thousand that replaces its pods
// one by one sends ten thousand endpoints again for each of them.
//
// # Structure
//
//	Any ─Unwrap─ bytes ─Name─┬─ the same bytes as before: nothing to do
//	                         │
//	                         ├─ Decode ── proto.Unmarshal ──┬─ Listener           listener.go
//	                         │                              │    filters, Fault    filter.go, filtertype.go, fault.go, admission.go, concurrency.go
//	                         │                              ├─ RouteConfig         virtualhost.go
//	                         │                              │    routes            route.go, match.go, hash.go, retry.go
//	                         │                              ├─ Cluster             cluster.go, tls.go, outlier.go, policy.go
//	                         │                              └─ what is ignored     ignored.go
//	                         │
//	                         └─ DecodeEndpoints(prev) ── protowire ── Endpoints    endpoints.go
//	                                                  localities and endpoints   endpoint.go, revision.go
//	                                                  from the wire              endpointfields.go, wire.go
//	                                                  what else they have        metadata.go, drop.go, unique.go
//	                                                  collections (LEDS)         collection.go, members.go, merge.go
//
// Listeners, routes and clusters are small and rare, so they go through the
// generated types. Every converter gets the path of what it converts, and
// reports what is wrong there; conversion goes on, so that one [Error] has all
// of it. The result of a conversion with an error in it is thrown away, which is
// why converters need not care what they return in that case.
//
// Endpoints are read from the wire into their final arrays, with the previous
// version next to them: what is the same is not even copied, and whoever
// compares two versions can do so by the addresses of the arrays. With
// proto.Unmarshal each endpoint is seven objects that are garbage a moment later:
// the wire takes a fifth of the time or less and a thousandth of the allocations,
// and a tenth of the time if one weight has changed (BenchmarkDecodeEndpoints).
// That this means the same as proto.Unmarshal, in all its oddities, is what
// TestEndpointsOracle is for.
//
// # What is refused, and what is not
//
// The rules are those of the gRFCs named below, in their latest form; where
// grpc-go does otherwise, the gRFC counts. Where they say nothing the rules of
// the field's proto do, for the sake of fields that Envoy would refuse as well.
// Fields that no gRFC names are ignored (A27-UNK-1); what is to be noticed of them is
// named (ignored.go). A few decisions:
//
//   - A Listener without api_listener is valid, and marked as a socket listener.
//   - A stateful session filter (A55) whose state is not in a cookie has no
//     effect, even where it is required. Filters are decoded here, and applied
//     by whoever intercepts RPCs.
//   - Of HTTP filters beyond those of this package Options.Filter knows the rules.
//   - The transport_socket of a cluster is validated whatever the credentials of the
//     channels are, for the resource is one for all (A29). Sockets other than TLS are
//     refused, A86's proxy too; so are names of servers in the typed field alone, which
//     gRPC does not read: what a client does not know must not make it trust more.
//     A82 and A101 are always on. The deprecated fields of provider instances count
//     where the new ones are absent, as Istio's older releases need it.
//   - Routes that no RPC can match, or whose action gRPC does not know, are left
//     out: those with query parameters, with a condition on a binary header, with
//     a cluster from a header or plugin (A28). A route to anything but a cluster
//     is kept, and RPCs that match it fail.
//   - Header names are in lower case, regular expressions anchored, RE2
//     substitutions in Go's syntax, fractions in parts per million cut at the
//     whole, and defaults filled in. What a virtual host says for all its routes
//     is in each of them, which share it.
//   - Endpoints without health are left out before anything else about them is
//     looked at, localities without weight likewise. Endpoints that drain are
//     kept, and marked.
//   - Malformed bytes are refused in all fields that are read, those of endpoints
//     that are left out included, but for the metadata of these.
//
// Load balancing policies are converted by xds/lbpolicy, as far as channels carry
// them out.
//
// # Bounds
//
// Memory is proportional to the input: at most 128 bytes per byte for endpoints,
// and 512 for the others, which is what the generated types take for a message
// full of empty messages (TestMemory). What could grow faster has a bound of its
// own (T-SEC-2): a regular expression is at most 8 KiB long, and those of a
// resource compile to at most 2^20 instructions; load balancing policies nest at
// most 16 deep; an Error has at most 32 entries and quotes at most 128 bytes of a
// text. Messages nest as deep as proto.Unmarshal lets them, 10 000 levels.
//
// # Concurrency
//
// Functions may be called at the same time. Nothing writes to a result once it
// is returned, so results are shared freely, and so is prev.
//
// # Sources
//
// gRFC A27, A28, A29, A30, A31, A32, A33, A36, A37, A39, A41, A42, A44, A47, A50, A52,
// A55, A61, A63, A76, A81, A82, A85, A86 and A101 (https://github.com/grpc/proposal), and the
// comments of Envoy's protos. Ids such as A27-CLA-6 and T-RC-4 are explained in
// REQUIREMENTS.md.
package resource
