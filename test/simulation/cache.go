/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"net/http"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// lists makes an empty list for each kind of the world.
var lists = map[reflect.Type]func() client.ObjectList{
	kindOf[volumesv1alpha1.VolumeAttachmentIntent]():    listOf[volumesv1alpha1.VolumeAttachmentIntentList],
	kindOf[volumesv1alpha1.VolumeAttachmentIntentSet](): listOf[volumesv1alpha1.VolumeAttachmentIntentSetList],
	kindOf[corev1.Namespace]():                          listOf[corev1.NamespaceList],
	kindOf[volumesv1alpha1.NodeVolumeState]():           listOf[volumesv1alpha1.NodeVolumeStateList],
	kindOf[storagev1.VolumeAttachment]():                listOf[storagev1.VolumeAttachmentList],
	kindOf[storagev1.CSINode]():                         listOf[storagev1.CSINodeList],
	kindOf[storagev1.CSIStorageCapacity]():              listOf[storagev1.CSIStorageCapacityList],
	kindOf[storagev1.CSIDriver]():                       listOf[storagev1.CSIDriverList],
	kindOf[storagev1.StorageClass]():                    listOf[storagev1.StorageClassList],
	kindOf[appsv1.DaemonSet]():                          listOf[appsv1.DaemonSetList],
	kindOf[coordinationv1.Lease]():                      listOf[coordinationv1.LeaseList],
	kindOf[corev1.Node]():                               listOf[corev1.NodeList],
	kindOf[corev1.Pod]():                                listOf[corev1.PodList],
	kindOf[corev1.PersistentVolume]():                   listOf[corev1.PersistentVolumeList],
	kindOf[corev1.PersistentVolumeClaim]():              listOf[corev1.PersistentVolumeClaimList],
	kindOf[corev1.ConfigMap]():                          listOf[corev1.ConfigMapList],
	kindOf[corev1.ServiceAccount]():                     listOf[corev1.ServiceAccountList],
	kindOf[rbacv1.Role]():                               listOf[rbacv1.RoleList],
	kindOf[rbacv1.RoleBinding]():                        listOf[rbacv1.RoleBindingList],
}

func listOf[T any, L interface {
	*T
	client.ObjectList
}]() client.ObjectList {
	return L(new(T))
}

// listOfKind makes an empty list of the kind. What is asked for with its metadata only are Namespaces, which are not in
// the world.
func listOfKind(t reflect.Type) func() client.ObjectList {
	if t == kindOf[metav1.PartialObjectMetadata]() {
		return listOf[metav1.PartialObjectMetadataList]
	}
	return lists[t]
}

func kindOf[T any]() reflect.Type { return reflect.TypeFor[*T]() }

var shortNames = map[string]string{
	"VolumeAttachmentIntent": "intent", "NodeVolumeState": "state", "VolumeAttachment": "attachment",
	"PersistentVolumeClaim": "claim", "PersistentVolume": "volume", "ConfigMap": "locks",
	"Unstructured": "fence",
}

func abbreviated(o any) string {
	name := reflect.TypeOf(o).Elem().Name()
	if short, ok := shortNames[name]; ok {
		return short
	}
	return name
}

var (
	scheme = newScheme()
	mapper = newMapper()
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{})
	namespaced := map[string]bool{
		"VolumeAttachmentIntent": true, "VolumeAttachmentIntentSet": true, "Lease": true, "Pod": true,
		"DaemonSet":             true,
		"PersistentVolumeClaim": true, "ConfigMap": true, "ServiceAccount": true, "Role": true, "RoleBinding": true,
		"CSIStorageCapacity": true,
	}
	for t := range lists {
		gvks, _, err := scheme.ObjectKinds(reflect.New(t.Elem()).Interface().(runtime.Object))
		if err != nil {
			panic(err)
		}
		scope := meta.RESTScopeRoot
		if namespaced[t.Elem().Name()] {
			scope = meta.RESTScopeNamespace
		}
		m.Add(gvks[0], scope)
	}
	return m
}

// nowhere is for what wants to know an API server before it is told not to use it.
var nowhere = &rest.Config{Host: "http://simulation.invalid"}

// newCache is a real cache over the process' watches.
func (c live) newCache(config *rest.Config, o cache.Options) (cache.Cache, error) {
	by := map[reflect.Type]client.ListOptions{}
	for object, only := range o.ByObject {
		namespace := ""
		for n := range only.Namespaces {
			namespace = n
		}
		by[reflect.TypeOf(object)] = selector(namespace, only.Label, only.Field)
	}
	o.Scheme, o.Mapper, o.HTTPClient = scheme, mapper, http.DefaultClient
	o.NewInformer = func(
		_ toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		t := reflect.TypeOf(o)
		return toolscache.NewSharedIndexInformer(listerWatcher{live: c, list: listOfKind(t), by: by[t]}, o, resync, indexers)
	}
	return cache.New(config, o)
}
