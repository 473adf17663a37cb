// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xdstls secures connections as the control plane says (gRFC A29).
//
//	Cluster resource ─ xds/resource ─► picker.TLS ─ Cluster.Update ─► settings
//	                                                                     │ one atomic pointer
//	balancer ─ Cluster.Secure ─► resolver.Address ─ gRPC ─► Target.Handshake
//	                                                           │
//	bootstrap's certificate_providers ─ certs.go ──────────────┘
//
// A cluster of a channel has one [Cluster] as long as the channel knows the cluster,
// and each address that the balancer connects to carries it, also while the control
// plane asks for no TLS: what a handshake does is settled when it begins. An update
// therefore touches no connection. It changes what new ones do (T-SEC-1). The same holds for
// hostnames of endpoints. The balancer replaces connections where these are verified.
//
// A handshake goes wrong rather than without security: the channel's fallback is for
// clusters without TLS settings, never for settings that cannot be carried out.
//
// # What is verified
//
// The certificate of the server, by the roots of the provider instance, by those of
// its trust domain if the provider has a SPIFFE bundle map (A87), or by the system's
// if and only if the resource says so (A82). Then its names, by the resource's
// matchers or the SNI (verify.go). TLS is 1.2 at least, the protocol h2.
//
// # What an error says
//
// The cluster, the provider instance, whose certificate it is about and which names
// would do. It quotes at most a few names of a foreign certificate and nothing of
// keys. gRPC puts it into the errors of RPCs that fail for lack of a connection.
package xdstls
