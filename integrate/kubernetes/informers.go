// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// byService is the index of slices by their service.
const byService = "service"

// watcher receives the events of informers. Its methods are safe for concurrent use.
type watcher interface {
	// changed is called after a change of a service or its slices; service is empty if all
	// services may be affected.
	changed(namespace, service string)
	// requested is called with the result of each request for a list or a watch.
	requested(kind string, err error)
}

// lists are the informers of a namespace, or of the nodes, which belong to no namespace.
type lists struct {
	services, slices, nodes cache.SharedIndexInformer // nodes alone, or the other two

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// watchNamespace starts the informers of a namespace. synced is called once, when all lists are complete.
func watchNamespace(ctx context.Context, c clients, namespace string, w watcher, synced func()) *lists {
	l := &lists{
		services: newInformer(c.core, namespace, "services", &corev1.Service{}, nil, w),
		slices: newInformer(c.discovery, namespace, "endpointslices", &discoveryv1.EndpointSlice{}, cache.Indexers{
			byService: func(obj any) ([]string, error) { return []string{serviceOf(obj)}, nil },
		}, w),
	}
	notify(l.services, func(obj any) { w.changed(namespace, nameOf(obj)) })
	notify(l.slices, func(obj any) { w.changed(namespace, serviceOf(obj)) })
	l.run(ctx, synced, l.services, l.slices)
	return l
}

// watchNodes starts the informer of the nodes.
func watchNodes(ctx context.Context, c clients, w watcher, synced func()) *lists {
	l := &lists{nodes: newInformer(c.core, "", "nodes", &corev1.Node{}, nil, w)}
	_, _ = l.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.changed("", "") },
		UpdateFunc: func(before, after any) { // also sent for each heartbeat
			if zoneOf(before) != zoneOf(after) {
				w.changed("", "")
			}
		},
	})
	l.run(ctx, synced, l.nodes)
	return l
}

func (l *lists) run(ctx context.Context, synced func(), informers ...cache.SharedIndexInformer) {
	ctx, l.cancel = context.WithCancel(ctx)
	for _, i := range informers {
		l.wg.Go(func() { i.RunWithContext(ctx) })
	}
	l.wg.Go(func() {
		for _, i := range informers {
			select {
			case <-i.HasSyncedChecker().Done():
			case <-ctx.Done():
				return
			}
		}
		synced()
	})
}

// stop returns when the informers have stopped.
func (l *lists) stop() {
	l.cancel()
	l.wg.Wait()
}

// service returns a service, or nil.
func (l *lists) service(namespace, name string) *corev1.Service {
	obj, ok, _ := l.services.GetIndexer().GetByKey(namespace + "/" + name)
	if !ok {
		return nil
	}
	return obj.(*corev1.Service)
}

// slicesOf returns the slices of a service.
func (l *lists) slicesOf(service string) (list []*discoveryv1.EndpointSlice) {
	objs, _ := l.slices.GetIndexer().ByIndex(byService, service)
	for _, obj := range objs {
		list = append(list, obj.(*discoveryv1.EndpointSlice))
	}
	return list
}

// zone is a nodeZone.
func (l *lists) zone(node string) (region, zone string) {
	obj, ok, _ := l.nodes.GetIndexer().GetByKey(node)
	if !ok {
		return "", ""
	}
	z := zoneOf(obj)
	return z[0], z[1]
}

// zoneOf returns the region and zone of a node.
func zoneOf(obj any) [2]string {
	labels := obj.(metav1.Object).GetLabels()
	return [2]string{labels[corev1.LabelTopologyRegion], labels[corev1.LabelTopologyZone]}
}

func nameOf(obj any) string    { return obj.(metav1.Object).GetName() }
func serviceOf(obj any) string { return obj.(metav1.Object).GetLabels()[discoveryv1.LabelServiceName] }

// notify calls changed for each object that is added, changed or deleted. A change of an
// object may move it to another service.
func notify(i cache.SharedIndexInformer, changed func(obj any)) {
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{ // the error is that of a stopped informer
		AddFunc:    changed,
		UpdateFunc: func(before, after any) { changed(before); changed(after) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			changed(obj)
		},
	})
}

// newInformer returns an informer that reports its requests to w. After the end of a watch, it
// continues from the version of the last event, and lists again if the server no longer has that
// version.
func newInformer(c rest.Interface, namespace, kind string, example runtime.Object, by cache.Indexers, w watcher) cache.SharedIndexInformer {
	lw := cache.NewFilteredListWatchFromClient(c, kind, namespace, func(*metav1.ListOptions) {})
	name := kindOf(kind, namespace)
	list, watches := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		obj, err := list(ctx, o)
		w.requested(name, err)
		return obj, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		i, err := watches(ctx, o)
		// A server without streamed lists rejects the request as invalid, and a list follows. A version
		// that has expired also causes a list.
		if !(o.SendInitialEvents != nil && apierrors.IsInvalid(err)) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			w.requested(name, err)
		}
		return i, err
	}
	i := cache.NewSharedIndexInformer(lw, example, 0, by)
	// The errors are for an informer that runs already.
	_ = i.SetTransform(trim)
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	return i
}

// kindOf names the objects of a namespace.
func kindOf(kind, namespace string) string {
	if namespace == "" {
		return kind
	}
	return kind + " of namespace " + namespace
}

// trim removes fields that take memory and are not used.
func trim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
	}
	if n, ok := obj.(*corev1.Node); ok {
		n.Spec, n.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	}
	return obj, nil
}
