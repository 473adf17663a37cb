// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap provides the parsing of xDS bootstrap documents: from JSON to a validated,
// immutable [Config].
//
// # Problem
//
// The bootstrap document is the only input of an xDS client that is written by hand, often
// through three layers of templates, and it fails before there is a control plane to report to.
// A mistake in it is an outage of everything the process calls, so the most important quality
// is the error message: every parseError names the source (file or environment variable), the
// position (a JSON path, or line and column if the text is not JSON), the rule, and the remedy.
// All mistakes of a document are reported at once, since finding them one rollout at a time is
// slow.
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
// The document is decoded into a tree whose nodes have their own paths, and is then read field
// by field. Decoding straight into tagged structs would be shorter, but encoding/json stops at
// the first mistake, does not report its position, matches names case-insensitively, and cannot
// express "a list of anything" (server_features) next to "an object, or else an error".
//
// A Config holds no goroutine, file or connection, so it needs no Close. Credentials are
// checked while parsing but built per channel, by [Server.DialOptions]; certificate and token
// files are read at handshake and call time, since they are often written after the process has
// started.
//
// # Accepted documents
//
//   - xds_servers, server_uri, channel_creds: gRFC A27 (A27-BOOT-2..7), the
//     list being a fallback chain as in A71. The first supported type of
//     channel_creds is used: "insecure", "tls" (A65), or a type of the [Parser].
//   - server_uri with the scheme of a source in the process, such as "file:resources.json", needs no
//     channel_creds: see xds.RegisterSource. The path of a file may be relative to the document's.
//   - call_creds: gRFC A97. All supported types are used: "jwt_token_file", or
//     a type of the [Parser].
//   - server_features: a list of any JSON values (A30); the known ones become
//     booleans of [Server], and "xds_v3" has no effect. One is xdslb's
//     own, since gRPC has none: "xdslb.delta_ads" selects the
//     incremental variant of ADS ([Server].Delta).
//   - node: id, cluster, metadata and locality are copied to the wire; fields that
//     the client sets itself are ignored (A27-BOOT-10, A27-NODE-2..4).
//   - authorities and the listener name templates: gRFC A47, see
//     [Config.ListenerName]. Equal servers are one *Server throughout.
//   - certificate_providers: gRFC A29. The "file_watcher" plugin is checked
//     immediately, with its SPIFFE bundle map (A87). The [Parser] checks other
//     plugins and their configurations. An unusable plugin is an error of the
//     resources that name it.
//
// Unknown fields are ignored at every level (A27-BOOT-8), null is equivalent to absent, and
// names are matched exactly. server_listener_resource_name_template is for servers, and
// allowed_grpc_services (A102) is for HTTP filters that are not supported. Both are ignored like
// unknown fields, but Config.Ignored does not list them.
//
// # Why google_default is not built in
//
// Linking google_default, or the credentials registry of package
// google.golang.org/grpc/xds/bootstrap which contains it, adds ALTS, OAuth and SPIFFE to every
// program, even if its bootstrap uses "insecure". So this package takes other types through two
// functions of [Parser], and the program decides:
//
//	p := bootstrap.Parser{
//		ChannelCreds: func(name string) bootstrap.ChannelBuilder { return registry.GetChannelCredentials(name) },
//		CallCreds:    func(name string) bootstrap.CallBuilder { return registry.GetCallCredentials(name) },
//	}
//
// where registry is that package. Types registered there by applications work the same way.
//
// # Caveats
//
//   - A bootstrap that combines "insecure" channel credentials with a token
//     that requires a secure transport is rejected here; grpc would refuse to
//     create the channel later.
//   - The SPIFFE bundle map of gRFC A87 is not read; a "tls" entry that names
//     one still verifies servers by its CA file, or by the system's.
//
// # Sources
//
// gRFC A27, A29, A30, A47, A53, A65, A71, A81, A88 and A97 (https://github.com/grpc/proposal);
// RFC 3986 for percent-encoding; xRFC TP1 for xdstp names. Requirement ids such as A27-BOOT-4
// and T-BOOT-1 are explained in integrate/docs/requirements.tsv.
package bootstrap
