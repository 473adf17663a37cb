// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package overlay implements patches that an operator applies to xDS resources on the client,
// without the control plane's involvement.
//
// An overlay is a JSON document:
//
//		{"patches": [{
//		  "resource": "cluster",
//		  "name": "outbound|7070||*.shop.svc.cluster.local",
//		  "target": "xds:///*",
//		  "merge": {"outlier_detection": {"consecutive_5xx": 5}},
//		  "when_unset": false,
//		  "allow_security_changes": false
//		}]}
//
//	  - resource is "listener", "route_configuration", "route", "cluster" or "endpoints". A route is
//	    one Route of a RouteConfiguration and is named "config/virtual_host/route"; route
//	    configurations that are part of a Listener are patched like others. Of endpoints
//	    (ClusterLoadAssignment) only the policy can be patched.
//	  - name and target are globs, in which "*" matches any characters. The target is the channel's
//	    target, such as "xds:///orders"; without it the patch applies to all channels.
//	  - merge is a JSON Merge Patch (RFC 7386) of the resource's protobuf JSON form. Fields have
//	    their proto names or their JSON names. An Any is merged if the patch has no "@type" or the
//	    type of the current value, and replaced otherwise. Setting a field of a oneof clears the
//	    other fields of that oneof.
//	  - when_unset limits the patch to the top-level fields that the resource leaves out.
//	  - allow_security_changes permits a patch of a cluster to change or remove a transport socket
//	    that the control plane sent, the type or the load_assignment of such a cluster, or the type of
//	    an aggregate cluster, which has the security of its children.
//
// [Parse] validates a document as a whole against the resource types, so that an unknown field or
// a value of the wrong type is found before any resource is patched. [Selection.Apply] applies the
// patches for one channel target to one resource, in order, between decoding and validation; patches
// of a Listener or RouteConfiguration apply before patches of its routes.
// Patches that do not fit a particular resource are skipped and reported for that resource.
//
// Resources are patched as protobuf messages and not as JSON text, so messages of unknown types in
// other parts of a resource are preserved. Endpoints are never decoded: the policy is
// replaced in the encoded ClusterLoadAssignment. Routes are decoded one at a time, as by the client,
// which accepts route configurations that are too large to be decoded as a whole.
//
// A [Source] has the overlay in force, and reloads it when its file changes.
package overlay
