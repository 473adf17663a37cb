// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package lbpolicy provides the conversion of an xDS cluster's load balancing policy into the
// plain [picker.Policy] from which snapshots are built: gRFC A52's registry of converters, and
// the older fields that it replaces.
//
// # Problem
//
// A cluster names its policy in one of two ways. The older is an enum with a message for each
// value (lb_policy, ring_hash_lb_config, ...). The newer is load_balancing_policy: a list in
// order of preference, so that a control plane can offer policies that only some of its clients
// support. Its entries carry messages of any type, some of which contain another list:
//
//	load_balancing_policy
//	└─ policies[0] WrrLocality ── endpoint_picking_policy
//	                              ├─ policies[0] TypedStruct myorg.MyLb   not linked in: skipped
//	                              └─ policies[1] RoundRobin               the first that is supported
//
// # Structure
//
// A [Registry] maps type names to converters. [Registry.Convert] takes the first supported
// entry of a list and passes it to the converter, which calls back for nested lists. The result
// is flat: one kind, its parameters, and the effect of the enclosing policies.
//
//	wrr_locality{X}          X with Flat unset: a locality is drawn first
//	X without wrr_locality   Flat: one layer of all endpoints, regardless of their locality
//	random_subsetting{X}     X with Subset set
//
// The rules are A52's, and each has a test that names it: load_balancing_policy takes
// precedence over the older fields, which are then not even validated (A52-SRC-1); the type
// decides and the name of an entry is ignored (A52-REG-6); unsupported entries are skipped
// (A52-REG-2); the first supported entry is final, and if it cannot be converted the cluster is
// invalid (A52-REG-4, A24); it is also invalid if no entry is supported (A52-REG-5) or lists
// are nested deeper than 16 levels (A52-REG-7). Errors are meant for the control plane's
// operator and begin with the path of the field:
//
//	load_balancing_policy.policies[1].typed_extension_config.typed_config: ring_hash: minimum_ring_size 10 exceeds maximum_ring_size 5
//
// # Why not JSON
//
// A52 converts into the JSON of a gRPC service config, which a second registry parses: a typed
// configuration is serialized and parsed within one process. Only custom policies need that
// detour, since their parsers take JSON.
//
// # Supported types
//
//	envoy.extensions.load_balancing_policies.
//	  round_robin.v3.RoundRobin                         EDF by endpoint weight (D2), slow start, zone-aware routing
//	  ring_hash.v3.RingHash                             A42
//	  least_request.v3.LeastRequest                     A48, slow start, zone-aware routing
//	  client_side_weighted_round_robin.v3.ClientSide... A58, A114, slow start
//	  pick_first.v3.PickFirst                           A62
//	  random.v3.Random                                  Envoy's, zone-aware routing
//	  maglev.v3.Maglev                                  Envoy's
//	  peak_ewma.v3alpha.PeakEwma                        least latency (Envoy's contrib)
//	  wrr_locality.v3.WrrLocality                       A52
//	  random_subsetting.v3.RandomSubsetting             A68
//	xds.type.v3.TypedStruct, udpa.type.v1.TypedStruct   A52: a policy by its gRPC name
//
// A TypedStruct names a policy of the program: a balancer registered with grpc-go, which becomes a custom policy
// after its own parser has accepted the configuration. Eight names are converted to policies that the snapshot
// implements: round_robin, pick_first, least_request_experimental, ring_hash_experimental, weighted_round_robin,
// and this module's own xdslb_least_latency, xdslb_prequal ([Prequal]) and xdslb_maglev, whose value is the
// message of maglev. All of them except pick_first also read slow_start_config, and all except pick_first, ring
// hash and maglev locality_lb_config, as Envoy's messages in JSON, since not every message of Envoy has both. As
// child balancers they would be slower, and ring_hash would not work at all, since the request's hash reaches it
// through an internal package of grpc-go. This is also the only way to set A76's requestHashHeader, which has no
// xDS field, and to get round robin without weights.
//
// A program adds types of its own with [Registry.With], or removes them. There is no global
// registration: a registry is a value, immutable and safe for concurrent use, and its zero
// value is ready to use.
//
// # Choices
//
//   - Ring sizes of 0 are errors: the xDS fields are wrappers, in which 0 is a
//     value and not the absence of one, and Envoy's rule for them begins at 1. In
//     gRPC's JSON, where 0 cannot be distinguished from unset, it means the default
//     (T-RING-5).
//   - Sizes are not capped. The local cap of 4096 (A42, T-SEC-2) is an
//     option of the client and is applied where rings are built, after the check of
//     min <= max here.
//   - wrr_locality inside wrr_locality has no effect: the inner one sees
//     one locality.
//   - random_subsetting inside wrr_locality, a subset of each locality, cannot be
//     expressed by [picker.Policy] and is an error; around wrr_locality it is a
//     subset of all endpoints. Nested subsets are reduced to the smallest.
//   - ring_hash inside wrr_locality means a ring per locality.
//   - Fields of Envoy's messages that gRPC does not have are used if the snapshot
//     supports them (slow start, hash_balance_factor, selection_method), and are then
//     validated. Others are ignored: locality_weighted_lb_config,
//     active_request_bias, use_hostname_for_hashing, hash policies of
//     consistent_hashing_lb_config, and all fields of PeakEwma except decay_time.
//   - Zone-aware routing ([picker.ZoneAware]) must be enabled explicitly, by
//     zone_aware_lb_config in either place. Envoy's other condition, a known local
//     cluster, is checked where the configuration is made. Its supported fields are
//     routing_enabled, min_cluster_size, force_local_zone,
//     force_locality_direct_routing and locality_basis, and
//     fail_traffic_on_panic is gRPC's behavior anyway. It has no effect inside
//     wrr_locality, which has already chosen the zone.
//
// # Cost
//
// Conversion runs once per changed cluster. It is linear in the size of the message, except
// that each level of nesting copies its bytes again, at most 16 times in total, and the
// configuration of a custom policy once more as JSON.
//
// Sources: gRFC A24, A42, A48, A52, A58, A62, A68, A76, A114; Envoy's documentation of the
// messages for everything that gRPC does not specify.
//
// # How to add a field of a policy
//
// Its converter validates it (endpoint.go, hashing.go, Registry.legacy); doc.go lists ignored
// fields. It becomes a parameter in picker/config.go, with its unit; the policy's row in
// picker.PolicyTraits checks it. The policy's file in picker and group.explain use it. Parameters
// of rings and tables belong in picker.placementSpec, or changes do not rebuild them. The JSON for
// channels without xDS is in balancer.standalonePolicies.
package lbpolicy
