// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap turns the JSON document that tells an xDS client whom to
// ask into a validated, immutable [Config].
//
// # Problem
//
// The bootstrap document is the one input of an xDS client that is written by
// hand, often through three layers of templates, and it fails before there is
// a control plane to report to. A mistake in it is an outage of everything the
// process calls, so the quality that counts here is the error message: every
// [Error] names the source (which file or environment variable), the place
// (a JSON path, or line and column where the text is not JSON), the rule, and
// what to do about it. All mistakes of a document are reported at once, since
// finding them one rollout at a time is the slow way.
//
// # Structure
//
//	environment ──Load──┐
//	                    ├─ text ─ JSON tree with paths ─ Config
//	bytes ──────Parse───┘           (value.go)          (config.go)
//	                                    │
//	                                    ├─ servers, authorities, node    parse.go
//	                                    └─ channel_creds, call_creds     credentials.go
//
// The document is decoded into a tree whose nodes know their own path, and is
// then read field by field. Decoding straight into tagged structs would be
// shorter, but encoding/json stops at the first mistake, does not say where it
// is, matches names without regard to case, and cannot express "a list of
// anything" (server_features) next to "an object, or else an error".
//
// A Config holds no goroutine, file or connection, so it needs no Close and may
// be thrown away. Credentials are checked while parsing but built per channel,
// by [Server.DialOptions]; certificate and token files are read at handshake
// and call time, since they are often written after the process has started.
//
// # What is accepted
//
//   - xds_servers, server_uri, channel_creds: gRFC A27 (A27-BOOT-2..7), the
//     list being a fallback chain as in A71. The first supported type of
//     channel_creds is used: "insecure", "tls" (A65), or one that the [Parser]
//     was given.
//   - call_creds: gRFC A97. All supported types are used: "jwt_token_file", or
//     one that the [Parser] was given.
//   - server_features: a list of any JSON values (A30); the known ones become
//     booleans of [Server], and "xds_v3" has nothing left to say. One is xdslb's
//     own, for gRPC has none: "xdslb.delta_ads" has the server spoken to in the
//     incremental variant of ADS ([Server].Delta).
//   - node: id, cluster, metadata and locality are copied to the wire; what the
//     client itself fills in is ignored (A27-BOOT-10, A27-NODE-2..4).
//   - authorities and the listener name templates: gRFC A47, see
//     [Config.ListenerName]. Equal servers are one *Server throughout.
//   - certificate_providers: gRFC A29. The "file_watcher" plugin is checked at
//     once, with its SPIFFE bundle map (A87); whether the program has others,
//     and what they say to their configuration, the [Parser] is told. What cannot
//     be used is an error of the resources that name it.
//
// Unknown fields are ignored at every level (A27-BOOT-8), null is the same as
// absent, and names are matched exactly. server_listener_resource_name_template
// belongs to servers, and is ignored like an unknown field.
//
// # Why google_default is not built in
//
// Linking google_default, or the credentials registry of package
// google.golang.org/grpc/xds/bootstrap which holds it, brings ALTS, OAuth and
// SPIFFE into every program, also into those whose bootstrap says "insecure".
// So this package takes other types through two functions of [Parser], and the
// program decides:
//
//	p := bootstrap.Parser{
//		ChannelCreds: func(name string) bootstrap.ChannelBuilder { return registry.GetChannelCredentials(name) },
//		CallCreds:    func(name string) bootstrap.CallBuilder { return registry.GetCallCredentials(name) },
//	}
//
// where registry is that package. Types registered there by applications work
// the same way.
//
// # Caveats
//
//   - A bootstrap that combines "insecure" channel credentials with a token
//     that must not travel in the clear is rejected here; grpc would refuse to
//     create the channel later.
//   - The SPIFFE bundle map of gRFC A87 is not read; a "tls" entry that names
//     one still verifies servers by its CA file, or by the system's.
//
// # Sources
//
// gRFC A27, A29, A30, A47, A53, A65, A71, A81, A88 and A97
// (https://github.com/grpc/proposal); RFC 3986 for percent-encoding; xRFC TP1
// for xdstp names. Requirement ids such as A27-BOOT-4 and T-BOOT-1 are
// explained in REQUIREMENTS.md.
package bootstrap
