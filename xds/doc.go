// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xds is the client side of xDS: it follows targets over ADS, and hands
// each one's configuration to whoever watches it, complete, validated and free
// of protobuf.
//
// # Problem
//
// What a target's picks depend on is spread over four types of resources (and
// DNS), which arrive in any order, change one at a time, may be missing, invalid
// or withdrawn, and come from servers that may be slow, gone, or replaced by
// others. The users of this package want none of that: they want to be told
// what to do now, whenever that changes.
//
// # Structure
//
//	Acquire ──► Client    one per bootstrap         acquire.go, client.go
//	              │
//	    Watch ──► view    one per target             view.go: looks, delivers
//	              │  ▲      plan.go                  routes, and when to switch to new ones
//	              │  │      cluster.go, aggregate.go clusters and their leaves
//	       watches│  │pokes
//	              ▼  │
//	             entry    one per resource           cache.go: last good version, state
//	              │  ▲                               dns.go: LOGICAL_DNS, an entry like others
//	              ▼  │
//	           authority  one per chain of servers   authority.go: names, fallback
//	              │  ▲
//	              ▼  │
//	            server    one per xDS server         server.go: what to ask, what was heard
//	                        stream.go, backoff.go    the ADS stream
//	                        response.go              from bytes to entries
//	                        channel.go               the gRPC channel, shared with LRS
//
// Everything between Watch and the stream is driven by state, not by events:
//
//   - An entry holds what is known of a resource, and tells the views that watch
//     it that there is something to see, but not what.
//   - A view that is told so looks at all its entries again, and delivers the
//     result if there is a new one. Ten changes in between are one look.
//   - A server that is told so sends the requests that its state calls for.
//
// So there are no queues that could grow, no order of events to get wrong, and
// no callback that runs under a lock. What is in use is replaced only by what is
// complete (see view.evaluate), which is all that consistency takes.
//
// # Goroutines
//
//   - One per server (run), which lives until the server is not needed. While
//     there is a stream it receives, and two kinds of helpers live as long as
//     the stream: one that sends, and one per type that has been received
//     (lane), so that endpoints do not wait while a large set of clusters is
//     decoded.
//   - One per view (run), until the view has not been watched for a while. It
//     alone calls Watchers.
//   - One per name of a LOGICAL_DNS cluster (lookup), besides gRPC's own.
//   - Timers: of resources, of the first connection, of what lingers. Each
//     checks under the lock that it still means something.
//
// All end with the Client; Client.done is closed when they have.
//
// # Locks
//
// There are two. registry.mu guards which clients there are and who uses them.
// Client.mu guards everything in a client. It is taken after registry.mu if
// both are, and is held neither while calling Watchers, gRPC or a resolver, nor
// while decoding.
//
// A lock for each server, cache and view, as one might have, would let them go
// on in parallel. But what they do under the lock is little: the work, decoding,
// is done without it. And every bug of this kind that users of xDS clients have
// reported was a deadlock between such locks, or a callback under one of them.
//
// # Failures
//
// Nothing that a server says or fails to say stops what works (gRFC A57, A88):
//
//   - Connection and stream errors concern resources of which nothing has been
//     heard. What has been received stays in use, for as long as it takes.
//   - An invalid version, a deletion, and an error in the place of a resource
//     leave the last good version in use, and appear as Leaf.Note, unless the
//     bootstrap gives the server the feature fail_on_data_errors (A88). With
//     Options.DropDeleted a deletion counts, as in A57, unless the server has
//     the feature ignore_resource_deletion (A53).
//   - Errors of clusters and endpoints stay with the cluster (A74). Those of
//     Listener and RouteConfiguration make the target fail: Watcher.Error.
//   - Errors name server, resource and node id.
//
// What a server is trusted with, and the limits that hold whatever it sends, are
// in SECURITY.md.
//
// # Differences from grpc-go's client
//
//   - One client for all targets, rather than one for each: one stream per
//     server and one copy of each resource (D4). A71 separates the targets so
//     that a missing resource of one does not make all fall back; here all
//     targets with an authority in common fall back together.
//   - A connection that takes longer than ConnectNotice counts as failed, for
//     errors and for fallback, while the attempt goes on. gRPC itself gives up
//     after 20 s.
//   - After a stream that had a response ends, the next one does not follow at
//     once; see backoff.
//   - A response that repeats what was just rejected is rejected again after
//     Options.BackoffBase: go-control-plane's caches send the first version of
//     a type again as soon as it is rejected.
//   - An aggregate cluster does without children that cannot be had, and the
//     LB policy is that of its leaves (A74, A75).
//   - Resources nobody asked for are not looked at, so they cannot be rejected.
//
// # Cost
//
// A response costs one hash of its bytes, and decoding of the resources that
// changed. A look at a target with n clusters costs O(n) map look-ups, and shares
// all that did not change with the configuration before. Memory is that of the
// decoded resources; their bytes are not kept, only a 128-bit hash of them.
//
// # Sources
//
// gRFCs A27, A28, A37, A40, A46, A47, A53, A54, A57, A61, A71, A74, A75 and A88
// (https://github.com/grpc/proposal); xRFC TP1 and TP3
// (https://github.com/cncf/xds); the xDS protocol document of Envoy. Ids such as
// T-XDS-6 refer to the project's requirement matrix.
package xds
