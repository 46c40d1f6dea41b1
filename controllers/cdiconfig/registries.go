package cdiconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
)

// ErrNoConfigMap is the fault of a registries.conf whose ConfigMap does not exist, or not yet.
var ErrNoConfigMap = errors.New("it does not exist")

// Registries says where images of registries are read from: by the registries.conf that the CDI object
// names, and with insecure as the CDIConfig has them. The ConfigMap is read by live, in namespace,
// Slipway's. What is wrong with it the result says by itself.
func Registries(ctx context.Context, cached, live client.Reader, namespace string, insecure []string) (registries.Settings, error) {
	settings := registries.Settings{Insecure: insecure}
	cdi, err := Installed(ctx, cached)
	if err != nil || cdi == nil || cdi.Annotations[names.AnnotationRegistries] == "" {
		return settings, err
	}
	settings, err = RegistriesConf(ctx, live, types.NamespacedName{Namespace: namespace, Name: cdi.Annotations[names.AnnotationRegistries]})
	settings.Insecure = insecure
	return settings, err
}

// RegistriesConf reads the registries.conf of a ConfigMap.
func RegistriesConf(ctx context.Context, live client.Reader, from types.NamespacedName) (registries.Settings, error) {
	settings := registries.Settings{Origin: registries.Key + " of ConfigMap " + from.String()}
	var found corev1.ConfigMap
	err := live.Get(ctx, from, &found)
	if apierrors.IsNotFound(err) {
		settings.Fault = fmt.Errorf("ConfigMap %s, which annotation %s names: %w; create it with the key %s, or remove the annotation",
			from, names.AnnotationRegistries, ErrNoConfigMap, registries.Key)
		return settings, nil
	}
	if err != nil {
		return settings, fmt.Errorf("reading ConfigMap %s: %w", from, err)
	}
	text, there := found.Data[registries.Key]
	if !there {
		settings.Fault = fmt.Errorf("ConfigMap %s, which annotation %s names, has no key %s; put the configuration there", from, names.AnnotationRegistries, registries.Key)
	}
	settings.Conf = text
	return settings, nil
}

// ValidateRegistries says what is wrong with the name of a ConfigMap with a registries.conf; "" names none.
func ValidateRegistries(name string) error {
	if name == "" {
		return nil
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Errorf("annotation %s: %q is no name of a ConfigMap: %s", names.AnnotationRegistries, name, strings.Join(wrong, "; "))
	}
	return nil
}

// CheckRegistries returns what is wrong with the ConfigMap that a new annotation names, which before
// was another; nil when nothing is. ErrNoConfigMap is the problem when it may still come.
func CheckRegistries(ctx context.Context, live client.Reader, namespace string, now, before client.Object) (problem, err error) {
	name := now.GetAnnotations()[names.AnnotationRegistries]
	if name == "" || before != nil && before.GetAnnotations()[names.AnnotationRegistries] == name {
		return nil, nil
	}
	if problem := ValidateRegistries(name); problem != nil {
		return problem, nil
	}
	settings, err := RegistriesConf(ctx, live, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return settings.Check(), nil
}
