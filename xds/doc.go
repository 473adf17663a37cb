// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xds implements an xDS client: it follows targets over ADS, and delivers the configuration
// of each target to its watchers, complete, validated and free of protobuf.
//
// # Problem
//
// The configuration of a target is spread over five types of resources (and DNS). They arrive in any
// order, change one at a time, may be missing, invalid or deleted, and come from servers that may be
// slow or unreachable, or be replaced by other servers. The users of this package receive only the
// result, whenever it changes.
//
// # Structure
//
//	Acquire ──► Client         one per bootstrap: acquire.go, client.go, fetch.go, status.go
//	              │
//	              │            targets of watchers:
//	              ├─► targets, dependencyManager  one per target: targets.go, dependencymanager.go
//	              │     │        dependency.go         which clusters have to be evaluated again
//	              │     │        plan.go               routes, and when to switch to new ones
//	              │     │        cluster.go, aggregate.go  clusters and their leaves
//	              │     │        origin.go             zones of the local cluster
//	              │     │        hashtables.go         bounds on hash rings and tables
//	              │     ▼ watches   ▲ notifies (interface watcher)
//	              ├─► cache, entry     one per resource: cache.go, entry.go, names.go
//	              │     │        patched.go            variants: with patches, or kept after a deletion
//	              │     │        journal.go            events of the targets that depend on entries
//	              │     ▼ subscribes (interface source)   ▲ stores versions
//	              ├─► authorities, authority   one per chain of servers: authority.go (fallback)
//	              ├─► lookups                  LOGICAL_DNS, STRICT_DNS: dns.go
//	              │
//	              └─► pool, server             one per xDS server: pool.go, server.go (backoff)
//	                    │        channel.go            the gRPC channel, shared with LRS
//	                    │        source.go             sources of resources in this process
//	                    ├─► stream                     one ADS stream: stream.go
//	                    └─► session                    state across streams: session.go, displaced.go
//	                          └─► subscriptions        one per type: subscription.go, peer.go
//	                                absence.go, ttl.go      resources that do not come, or expire
//	                                variant.go              the two variants of ADS
//	                                sotw.go, delta.go       requests, ACKs, deletions of each
//	                                response.go             from bytes to entries
//	                                splitresponse.go, slots.go  the resources of a response
//	                                faults.go               the errors of a response, for the NACK
//
//	core.go                        shared by all parts: the mutex, the log, the options (options.go)
//	resourcestatus.go, serverstatus.go status of resources and servers
//	keepbytes.go                   whether to keep the bytes of resources
//	view.go                        the targets of channels, with or without an overlay
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
//   - One that applies patches (patches.run), while any are due, and one per file of an overlay
//     (overlay.Source), while a target uses it.
//   - One per name of a LOGICAL_DNS or STRICT_DNS cluster (lookup.run), besides gRPC's own.
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
// There are three. registry.mu guards the set of clients and their users, and openings.mu the times of
// the latest streams of all clients. core.mu guards everything in a client. It is taken after
// registry.mu and before openings.mu if both are. It is not held while Watchers, gRPC or a resolver are called, nor
// while decoding.
//
// A lock for each server, cache and target would allow parallelism. But the work under the
// lock is small, since decoding is done without it. The known bugs of this kind in xDS clients were
// deadlocks between such locks, or callbacks under one of them.
//
// # Failures
//
// A failure of a server does not stop a configuration that works (gRFC A57, A88):
//
//   - Connection and stream errors affect only resources for which nothing has been
//     received. Received versions stay in use for an unlimited time.
//   - After an invalid version, a deletion, or an error in place of a resource, the last valid
//     version stays in use, with Leaf.ResolutionNote, unless the bootstrap gives the server
//     the feature fail_on_data_errors (A88). With TargetOptions.DropDeleted deletions take effect, as in
//     A57, unless the server has the feature ignore_resource_deletion (A53).
//   - Errors of clusters and endpoints affect their cluster only (A74). Errors of
//     Listener and RouteConfiguration make the target fail: Watcher.Error.
//   - New routes take effect although a cluster that they name is unavailable, for example one of
//     another authority. They wait for a cluster about which nothing is known yet, also if an outage of
//     the servers that sent the routes is the reason.
//   - Errors name server, resource and node id.
//
// # The two variants of ADS
//
// ADS has two variants: state of the world (sotw), and incremental (delta). An incremental
// message has the changes only, and a new stream starts with the names and versions that the client has.
// The default is state of the world; the server feature xdslb.delta_ads in the bootstrap and
// Options.Delta request the incremental variant. gRPC has no feature for it.
// If a server answers UNIMPLEMENTED, the client switches to the other variant at once, and tries the
// wanted one again with the first stream after five minutes. serverStatus.Variant is the present
// variant. HTTP status 404 counts as UNIMPLEMENTED, since proxies return it for methods without a
// route.
//
// The differences are in the methods of variant, protocol and message. Code above a server does not
// depend on the variant. These consequences of the protocol are visible:
//
//   - Deletions of routes and endpoints exist in the incremental variant only. They leave the last
//     version in use, with a note.
//   - In the incremental variant a server can report that a resource does not exist, without a timer.
//   - In state of the world a server that relies on the version in the first request of a stream
//     may stay silent although resources have been deleted. go-control-plane's linear cache
//     does so if all the resources that the request names are gone.
//   - ResourceStatus.Version is the version of the resource, not of the response, in the incremental
//     variant.
//   - A server that has received the versions of all wanted resources need not send anything. If it
//     sends nothing for Options.ResourceTimeout, it counts as having
//     responded (A57). A stream that ends earlier is a failure, which only delays the next one by the
//     backoff.
//   - The subscriptions that the server has are known exactly: a name that is not wanted any
//     more is always unsubscribed from. A name that is wanted again is subscribed to again a tenth of
//     a second later, so that earlier responses have arrived, since responses do
//     not identify the request that they answer. The cache is used meanwhile.
//   - A server has to answer a new subscription. If it sends nothing for
//     Options.ResourceTimeout, it does not have the resource, even if the cache has an earlier version.
//   - A request has about 1 MiB of names and versions at most. Versions that are not claimed, because
//     there is no room, or because the server has refused the request before (RESOURCE_EXHAUSTED),
//     are sent again.
//
// In both variants a resource may have a time to live. When that expires, the resource counts as
// deleted and is not used any more, whatever the features of the server, and the next server
// is used if the first one cannot be reached (A71). A heartbeat, a Resource without content,
// renews it.
//
// # Overlays
//
// The channels of a [View] use resources with the patches of an overlay. The patches are applied to
// the bytes as received, by one goroutine of the client and without the lock (patched.go). Resources
// are validated and acknowledged before that. Targets with equal patches for a resource share the
// result, and targets without patches for it use the resource as received. The bytes are kept only
// while a target has an overlay. Of endpoints only the policy is patched, so that an update of
// endpoints is decoded once.
//
// In the same way the targets of a [View] without DropDeleted share the last version of a resource that
// the server has deleted, and targets with DropDeleted stop using it.
//
// # Observability
//
// These functions return copies, at any time:
//
//   - [Clients] returns the clients of the process; Node and Targets identify them.
//   - Client.Resources returns the resources: the state, the version in use, and
//     the version that was rejected (A40). Package csds serves it.
//   - Client.Servers returns the servers: whether they are connected, failures, and messages, bytes,
//     valid and invalid resources, requests and NACKs by type (A78). Counts are for the
//     client, even if it has left a server and returned.
//   - View.Events returns the latest 128 events of a target.
//   - picker.Config.Received is the arrival of the latest resource of a configuration.
//
// [Options].Logger receives failures and recoveries, with server, type,
// resource, version, node and error as attributes. Invalid resources, fallbacks, unreachable
// servers, deletions, errors in place of resources, and missing resources are
// warnings. Repeated lines, which may differ in the version, are written once in a minute, with
// the number of suppressed ones. Of other lines with the same message about a server 32 are written in
// a minute, so that thousands of resources that fail at once leave room for other lines. A line is
// about one response: if that has many invalid resources, the line names the first, counts them all,
// and quotes as many errors as fit into 4 KiB. Lines are written without a lock, by a goroutine of
// their own, so a Logger that blocks delays nothing else. 256 lines wait for it, and further ones are
// counted.
//
// SECURITY.md describes the trust in servers, and the limits that hold for all messages.
//
// # Differences from grpc-go's client
//
//   - There is one client for all targets with equal Options, rather than one for each target: one
//     stream per server and one copy of each resource (D4). A71 separates the
//     targets so that a missing resource of one does not make all fall back; here
//     all targets with an authority in common fall back together.
//   - A connection that takes longer than ConnectFailureAfter counts as failed, for
//     errors and for fallback, while the attempt goes on. gRPC itself ends it
//     after 20 s.
//   - After a stream that had a response ends, the next one follows at a random time within
//     BackoffBase, so that a fleet does not reconnect in step. Attempts that fail back off, up to
//     two BackoffBase and a third of the outage; see timing.Backoff. With
//     Options.ReconnectSpread a client whose cache has all wanted resources reconnects at a random
//     time within that, and receives changes that late.
//   - A NACK follows another of the same type after Options.BackoffBase.
//     go-control-plane's caches send the first version of a type again as soon as it
//     is rejected.
//   - A resource that only a later server of a chain has sent gets the usual time
//     when the first server is back, and then counts as missing there.
//   - An aggregate cluster skips unavailable children, and the
//     LB policy is that of its leaves (A74, A75).
//   - Resources that are not subscribed to are skipped, so they cannot be rejected.
//
// # Cost
//
// A response costs one hash of its bytes, and decoding of the resources that
// changed. Its bytes stay in the buffers into which gRPC has read them. A resource is first
// compared, by the hash, with the one in its place in the latest response: if it is the
// same, its name is neither read nor looked up. That takes 24 bytes for each resource that
// is subscribed to. (A comparison of bytes would require keeping them, and reading twice as many.)
// If a server sends resources in another order each time, their names are looked up.
// A change of one of 9000 clusters is a response of 11 MB and costs about 3 ms of a processor in state
// of the world, and 1.3 KB and 70 µs in the incremental variant, if the routes of one target lead to
// all of them; 30 µs if each has its own target (BenchmarkClusterChange). An evaluation
// includes the clusters that use the changed resource, and shares all others with the previous
// configuration; the slice of pointers is copied. A change of routes costs O(clusters).
// The memory is for the decoded resources. Their bytes are not kept, only a 128-bit hash, unless
// a target has an overlay, or [KeepBytes] was called, which costs one copy of the bytes: with 10,000 endpoints that
// have an address and a weight, a client holds 49 bytes for each without, and 77 with it, 27
// of them as received (BenchmarkKeepBytes). A journal has 128 events of 96 bytes at most, which
// targets share, and their texts, each of which is cut at 1 KiB.
//
// # How to add a cause to end a stream
//
// A timer, as in stream.watchSilence, calls session.endStreamLocked with the cause. The text and
// the event of the end belong in session.endedLocked, and server.pause decides when to open the
// next stream.
//
// # Sources
//
// gRFCs A27, A28, A37, A40, A46, A47, A53, A54, A57, A61, A71, A74, A75, A78 and A88
// (https://github.com/grpc/proposal); xRFC TP1 and TP3
// (https://github.com/cncf/xds); the xDS protocol document of Envoy. Ids such as
// T-XDS-6 and D4 are explained in integrate/docs/requirements.tsv and ARCHITECTURE.md.
package xds
