// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xdstls provides the connection security configured by the control plane (gRFC A29).
//
//	Cluster resource ─ xds/resource ─► picker.TLS ─ Cluster.Update ─► settings
//	                                                                     │ one atomic pointer
//	balancer ─ Cluster.Secure ─► resolver.Address ─ gRPC ─► Target.Handshake
//	                                                           │
//	bootstrap's certificate_providers ─ certs.go ──────────────┘
//
// A cluster of a channel has one [Cluster] as long as the channel knows the cluster, and each
// address to which the balancer connects carries it, even without TLS settings: a handshake
// uses the settings at its start. An update therefore does not affect existing connections,
// only new ones (T-SEC-1). The same applies to hostnames of endpoints. The balancer replaces
// connections if these are verified.
//
// A handshake never falls back to an insecure connection: the channel's fallback credentials
// are for clusters without TLS settings, not for settings that cannot be applied.
//
// # Verification
//
// The server's certificate is verified by the roots of the provider instance, by the roots of
// its trust domain if the provider has a SPIFFE bundle map (A87), or by the system's if and
// only if the resource selects them (A82). Then its names are verified by the resource's
// matchers or the SNI (verify.go). The minimum version is TLS 1.2, the protocol is h2.
//
// # Errors
//
// Errors contain the cluster, the provider instance, the subject of the certificate and the
// accepted names. They quote at most a few names of an untrusted certificate and no key
// material. gRPC includes them in the errors of RPCs that fail for lack of a connection.
package xdstls
