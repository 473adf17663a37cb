// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xds is the client side of xDS: it follows targets over ADS, and hands
// each one's configuration to whoever watches it, complete, validated and free
// of protobuf.
//
// # Problem
//
// What a target's picks depend on is spread over five types of resources (and
// DNS), which arrive in any order, change one at a time, may be missing, invalid
// or withdrawn, and come from servers that may be slow, gone, or replaced by
// others. The users of this package want none of that: they want to be told
// what to do now, whenever that changes.
//
// # Structure
//
//	Acquire ──► Client         one per bootstrap and options: acquire.go, client.go, fetch.go, status.go
//	              │
//	              │            targets of watchers:
//	              ├─► targets, dependencyManager  one per target: targets.go, dependencymanager.go
//	              │     │        dependency.go         which clusters have to be evaluated again
//	              │     │        plan.go               routes, and when to switch to new ones
//	              │     │        cluster.go, aggregate.go  clusters and their leaves
//	              │     │        origin.go             zones of the client's own fleet
//	              │     │        hashtables.go         bounds on hash rings and tables
//	              │     ▼ watches   ▲ notifies (interface watcher)
//	              ├─► cache, entry     one per resource: cache.go, entry.go, names.go
//	              │     │        assignment.go         an entry that watches others (LEDS)
//	              │     │        collection.go         an entry with many resources
//	              │     │        journal.go            events of the targets that depend on entries
//	              │     ▼ subscribes (interface source)   ▲ stores versions
//	              ├─► authorities, authority   one per chain of servers: authority.go (fallback)
//	              ├─► lookups                  LOGICAL_DNS: dns.go
//	              │
//	              └─► pool, server             one per xDS server: pool.go, server.go (backoff)
//	                    │        channel.go            the gRPC channel, shared with LRS
//	                    ├─► stream                     one ADS stream: stream.go
//	                    └─► session                    state across streams: session.go
//	                          └─► subscriptions        one per type: subscription.go, peer.go
//	                                absence.go, ttl.go      resources that do not come, or expire
//	                                variant.go              the two variants of ADS
//	                                sotw.go, delta.go       requests, ACKs, deletions of each
//	                                codec.go                how gRPC reads large responses
//	                                response.go, members.go from bytes to entries
//	                                pieces.go, places.go    the resources of a response
//	                                faults.go               the errors of a response, for the NACK
//
//	core.go                        shared by all parts: the mutex, the log, the options
//	resourcestatus.go, relation.go status of resources and servers
//	keepbytes.go                   whether to keep the bytes of resources
//
// References point down: the cache does not know the targets, sources and servers behind its
// interfaces, servers do not know authorities, and targets do not know servers. TestLayers checks it.
// Everything between Watch and the stream is driven by state, not by events:
//
//   - An entry holds the latest version of a resource. When it changes, it notifies its watchers.
//   - A dependency manager that is notified marks the clusters that use the entry as stale. It
//     evaluates them in its goroutine, and delivers the result if it is a new one. Ten changes before
//     that are one evaluation.
//   - A server that is notified sends the requests that follow from its state.
//
// So there are no queues that could grow, no order of events to get wrong, and
// no callback under a lock. A configuration in use is replaced only by a complete
// one (see dependencyManager.evaluateLocked), which ensures consistency.
//
// # Goroutines
//
//   - One per server (server.run), while the server is in use. During a stream it receives, and there
//     are two more kinds that end with the stream: one that sends, and one per type that has been
//     received (stream.work), so that endpoints do not wait while a large set of clusters is
//     decoded.
//   - One per dependency manager (run), until the target has not been watched for
//     a while. Only this one calls Watchers.
//   - One per name of a LOGICAL_DNS cluster (lookup.run), besides gRPC's own.
//   - One that writes lines for the Logger, while there are any.
//   - Short ones that wait: for a channel to a server to connect, or to close.
//   - Timers: of resources, of the first connection, of unused targets and clients. Each
//     checks under the lock whether it is still relevant.
//
// All end with the Client; Client.done is closed when they have. This does not wait for the
// Logger, which is the user's code, nor for gRPC to close a channel.
//
// # Locks
//
// There are two. registry.mu guards the set of clients and their users.
// core.mu guards everything in a client. It is taken after registry.mu if
// both are. It is not held while Watchers, gRPC or a resolver are called, nor
// while decoding.
//
// A lock for each server, cache and target would allow parallelism. But the work under the
// lock is small, since decoding is done without it. The known bugs of this kind in xDS clients were
// deadlocks between such locks, or callbacks under one of them.
//
// # Failures
//
// Nothing that a server says or fails to say stops what works (gRFC A57, A88):
//
//   - Connection and stream errors concern resources of which nothing has been
//     heard. What has been received stays in use, for as long as it takes.
//   - An invalid version, a deletion, and an error in the place of a resource
//     leave the last good version in use, and appear as Leaf.ResolutionNote, unless the
//     bootstrap gives the server the feature fail_on_data_errors (A88). With
//     Options.DropDeleted a deletion counts, as in A57, unless the server has
//     the feature ignore_resource_deletion (A53).
//   - Errors of clusters and endpoints stay with the cluster (A74). Those of
//     Listener and RouteConfiguration make the target fail: Watcher.Error.
//   - Errors name server, resource and node id.
//
// # The two variants of ADS
//
// A server is spoken to in one of the two variants of ADS: state of the world (sotw),
// or incremental (delta), in which a change costs what changed, and a new stream the
// names and versions of what the client has. The default is the first; the server
// feature xdslb.delta_ads in the bootstrap and Options.Delta ask for the second. gRPC
// has no feature for it. If a server answers UNIMPLEMENTED, the client switches to the
// other variant at once, either way, and tries the one that is wanted again with the first stream
// after five minutes. While there are collections, which only one of them has, it ends a stream to do
// so, and warns. ServerStatus.Variant says which is spoken. HTTP's
// 404 counts as UNIMPLEMENTED, since that is what a proxy says of a method that it has no
// route for.
//
// They differ in the methods of variant, protocol and message, and code above a server does not depend
// on the variant. These consequences of the protocol are visible:
//
//   - Deletions of routes and endpoints can be said, and leave the last version in use,
//     with a note. In state of the world they cannot.
//   - A server can say that a resource does not exist. That needs no timer.
//   - In state of the world a server that goes by the version in the first request of a stream
//     may stay silent though resources were deleted meanwhile. go-control-plane's linear cache
//     does so if all the resources that the request names are gone.
//   - ResourceStatus.Version is the resource's own, not the response's.
//   - A server that is told the versions of all that is wanted need not say anything. If
//     it does not for as long as it may take to send a resource, it counts as one that
//     responded (A57). A stream that is cut earlier is a failure, which costs a pause before
//     the next one and nothing else.
//   - What the server takes to be subscribed is known exactly: a name that is not wanted any
//     more is always unsubscribed from. A name that is wanted again is subscribed to again once
//     it has rested for a tenth of a second, so that earlier responses have arrived, which do
//     not say which request they answer. The cache is used meanwhile.
//   - A server has to answer a new subscription. If it is silent for as long as a resource may
//     take, it does not have the resource, though the cache may have it from before.
//   - A request has about 1 MiB of names and versions at most. What is not claimed for want of
//     room, or since the server has refused the request before (RESOURCE_EXHAUSTED), is just
//     sent again.
//
// Either way a resource may have a time to live: when it is over, the resource counts as
// deleted and is not used any more, whatever holds for other deletions, and the next server
// is asked for it if its own is out of reach (A71). A heartbeat, a Resource without content,
// renews it.
//
// # Collections of endpoints
//
// A locality may name a glob collection instead of its endpoints (LEDS), which takes the
// incremental variant: a subscription to xdstp://authority/type/path/* brings all
// xdstp://authority/type/path/name, each with a version of its own. One endpoint that
// changes is a message of 300 bytes then. Of what follows from that this can be seen:
//
//   - An assignment is put to use with its collections, all of which are known, empty or
//     known to be missing by then. Until then the assignment before stays in use; and longer, with a
//     note, if it has endpoints and the new one would have none because a collection does not come.
//   - A member that is invalid leaves its last good version and all others in force.
//   - A member that goes is gone at once. A server that says so of a collection as a whole
//     means that it has no members (xRFC TP1). That takes no known member away: it leaves
//     them in use, with a note, as the deletion of an assignment does.
//   - On a new stream the client claims the versions of all members. What it did not claim,
//     as after a change of servers, counts as the whole collection in the first response.
//   - Members whose time to live is over at once are one change. A heartbeat for a member that
//     the client does not have is rejected, and the collection fetched again.
//   - Of members with the same address the first one counts, by locality and name. The
//     others are left out, with a note and a line in the log.
//   - In state of the world an assignment with glob collections is rejected.
//
// A list collection, an LbEndpointCollection of one name, is rejected with its path: Envoy has
// none either. The comment of LedsClusterLocalityConfig.leds_collection_name in Envoy's
// endpoint_components.proto says that glob collections are supported only in the incremental
// variants, that other names are those of list collections, and that Envoy supports only glob
// collections (as of go-control-plane/envoy v1.39.1).
//
// # What a client shows
//
// Nothing calls back: whoever wants to know asks, at any time, for a copy.
//
//   - [Clients] has the process's clients; NodeID, Bootstrap and Targets say which is which.
//   - Client.Resources has each resource: its state, the version in force, and beside it
//     the version that was rejected (A40). Package csds puts that on the wire.
//   - Client.Servers has each server: connected or not, failures, and messages, bytes,
//     valid and invalid resources, requests and NACKs by type (A78). Counts are those of the
//     client, however often a server was left and returned to.
//   - Client.Events has what happened to a target last: 64 events, in a ring.
//   - picker.Config.Received is when the latest resource of a configuration came.
//
// [Options].Logger is told what goes wrong, and when it is over, with server, type,
// resource, version, node and error as attributes. Invalid resources, fallbacks, servers out
// of reach, deletions, errors in the place of resources, and resources that do not come are
// warnings. Of equal lines, whatever versions they are about, one is written in a minute, with
// the number of those left out since. Of lines that differ, 32 in a minute have the same message
// about a server, so that thousands of resources that go wrong at once leave room for others. One line is about one response: of a response with many
// invalid resources it names the first, counts them all, and quotes what is wrong with as
// many as fit into 4 KiB. Lines are written when no lock is held, by a goroutine of their own: a
// Logger that blocks holds nothing else up. 256 lines wait for it, and further ones are counted.
//
// What a server is trusted with, and the limits that hold whatever it sends, are
// in SECURITY.md.
//
// # Differences from grpc-go's client
//
//   - One client for all targets with equal Options, rather than one for each: one
//     stream per server and one copy of each resource (D4). A71 separates the
//     targets so that a missing resource of one does not make all fall back; here
//     all targets with an authority in common fall back together.
//   - A connection that takes longer than ConnectFailureAfter counts as failed, for
//     errors and for fallback, while the attempt goes on. gRPC itself gives up
//     after 20 s.
//   - After a stream that had a response ends, the next one follows at a random time within
//     BackoffBase, so that a fleet does not return in step. Attempts that fail back off, up to
//     two BackoffBase and a third of the outage; see timing.Backoff. With
//     Options.ReconnectSpread a client that has all it needs in its cache returns at a random
//     time within that: what the server changed meanwhile comes that late.
//   - A NACK follows another of the same type after Options.BackoffBase.
//     go-control-plane's caches send the first version of a type again as soon as it
//     is rejected.
//   - What only a server further down the chain has sent gets the time that any
//     resource has once the first server is back, and then counts as missing there.
//   - An aggregate cluster does without children that cannot be had, and the
//     LB policy is that of its leaves (A74, A75).
//   - Resources nobody asked for are not looked at, so they cannot be rejected.
//
// # Cost
//
// A response costs one hash of its bytes, and decoding of the resources that
// changed. Its bytes stay in the buffers that gRPC has read them into. A resource is first
// compared with what was in its place in the latest response, by the hash: if it is the
// same, its name is neither read nor looked up. That takes 24 bytes for each resource that
// is subscribed to. (Comparing bytes would take keeping them, and reading twice as many.)
// A server that sends resources in another order each time has their names looked up.
// One of 9000 clusters that changes is 11 MB and about 3 ms of a processor in state of
// the world, and 1.3 KB and 70 µs in the incremental variant, if one target's routes lead to
// all of them; 30 µs if each has a target of its own (BenchmarkClusterChange). An evaluation
// looks at the clusters that use what changed, and shares all the rest with the
// configuration before; its slice of pointers is copied. Other routes cost O(clusters).
// Memory is that of the
// decoded resources; their bytes are not kept, only a 128-bit hash of them, unless
// [KeepBytes] was called. Then it is one copy of the bytes more: with 10,000 endpoints that
// have an address and a weight, a client holds 49 bytes for each without, and 77 with it, 27
// of them those that came (BenchmarkKeepBytes). A journal has 64 events of 96 bytes at most, which
// targets share if they are about the same, and their texts, each of which is cut at 1 KiB.
//
// # Sources
//
// gRFCs A27, A28, A37, A40, A46, A47, A53, A54, A57, A61, A71, A74, A75, A78 and A88
// (https://github.com/grpc/proposal); xRFC TP1 and TP3
// (https://github.com/cncf/xds); the xDS protocol document of Envoy. Ids such as
// T-XDS-6 and D4 are explained in REQUIREMENTS.md and ARCHITECTURE.md.
package xds
