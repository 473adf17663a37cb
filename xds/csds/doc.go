// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package csds shows what the process's XdsClients have received from their control
// planes, and what is wrong with it, over gRPC: the Client Status Discovery Service
// (A40), which grpcdebug and control planes' tools read.
//
//	server := grpc.NewServer()
//	if err := csds.Register(server); err != nil { … }
//
// Every client gets one ClientConfig. It has the node as it is in discovery requests,
// the targets in client_scope (A71), and each resource that a target uses in
// generic_xds_configs:
//
//   - name and type_url, version_info and last_updated of the version in force, and that
//     version in xds_config, byte by byte as it was received, fields included that this
//     module does not know.
//   - client_status: REQUESTED, ACKED, NACKED, DOES_NOT_EXIST, RECEIVED_ERROR or TIMEOUT
//     (A40, A88). UNKNOWN is for names whose authority is not in the bootstrap, so that
//     nobody can be asked.
//   - error_state: why there is no version in force, or why that is not the latest. For
//     NACKED it has the version that was rejected, and when that arrived. It is set for
//     other states, too: RECEIVED_ERROR, DOES_NOT_EXIST, TIMEOUT, UNKNOWN, and REQUESTED
//     if no server can be reached. failed_configuration is not: rejected bytes are not
//     kept.
//
// A request with exclude_resource_contents gets no xds_config. One with node_matchers is
// INVALID_ARGUMENT. What is shown is for whoever may know the configuration; it holds no
// keys, but addresses and names. Register it on an admin port.
//
// # Beside grpc-go's own
//
// google.golang.org/grpc/xds/csds shows the clients of google.golang.org/grpc/xds, and not
// these. A program that uses both registers one service with both:
//
//	stock, err := stockcsds.NewClientStatusDiscoveryServer()
//	…
//	err = csds.NewServer(csds.Options{Others: []statusv3.ClientStatusDiscoveryServiceServer{stock}}).Register(server)
//
// google.golang.org/grpc/admin registers grpc-go's own CSDS, if it is linked, and channelz.
// After it, [Register] returns an error; before it, gRPC ends the process. Register
// channelz by google.golang.org/grpc/channelz/service then.
//
// grpcdebug wants exactly one ClientConfig (until its change 26): it works as long as
// the process has one XdsClient, that is as long as all channels have the same bootstrap
// and options, and not with Others that have clients. A process without any channel has
// none.
//
// # Cost
//
// Importing the package makes clients keep the bytes of resources ([xds.KeepBytes]), which
// they do not otherwise. An RPC copies what is asked for; nothing else is slower. Kept
// bytes are those of the resource alone, not of the message it came in. The package links
// Envoy's admin and bootstrap protos.
//
//	                              without     with
//	an endpoint in the XdsClient     49 B     77 B   address and weight, 27 B as they come
//	the binary of a client        24.2 MB  26.2 MB   linux/amd64, without symbols
//
// What comes is what is kept: endpoints with metadata cost as much more as they are longer.
package csds
