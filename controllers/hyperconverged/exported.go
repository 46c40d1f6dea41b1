package hyperconverged

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// Planned returns everything that the operator may install with options, bundles
// included: for those who have to know it beforehand.
func Planned(options Options) ([]*unstructured.Unstructured, error) {
	wanted, err := plan(&hcov1.HyperConverged{}, infra{}, options.Values())
	if err != nil {
		return nil, err
	}
	for _, bundle := range options.Bundles {
		objects, err := planBundle(bundle, []string{options.Namespace}, options.Values())
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, objects...)
	}
	sizes, err := planSizes(options.Sizes, options.Version)
	if err != nil {
		return nil, err
	}
	sources, err := plannedSources(options)
	return slices.Concat(wanted, sizes, sources), err
}

// plannedSources are the DataImportCrons of the common boot images, with the rights to these.
func plannedSources(options Options) ([]*unstructured.Unstructured, error) {
	planned, err := planRights(hcov1.CommonBootImageNamespace, options.Values())
	if err != nil {
		return nil, err
	}
	shipped, err := shippedSources(options.BootSources)
	if err != nil {
		return nil, err
	}
	sources := bootSources(&hcov1.HyperConverged{}, shipped)
	for i := range sources {
		cron, err := planCron(&sources[i], options.Version)
		if err != nil {
			return nil, err
		}
		planned = append(planned, cron)
	}
	return planned, nil
}

// Definition returns the CustomResourceDefinition of HyperConverged as it is before the
// operator runs: an object of the older version is refused until the operator can convert it.
func Definition(namespace string) (*unstructured.Unstructured, error) {
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	own := only(all, hyperConvergedDefinition)
	if len(own) != 1 {
		return nil, fmt.Errorf("definition %s is not embedded", hyperConvergedDefinition)
	}
	objects, err := render.Decode(own[0].content)
	if err != nil || len(objects) != 1 {
		return nil, fmt.Errorf("decoding definition %s: %w", hyperConvergedDefinition, err)
	}
	// Without a certificate authority the API server cannot call it yet; the operator adds its own.
	if err := unstructured.SetNestedMap(objects[0].Object, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{"service": map[string]any{
			"namespace": namespace, "name": webhookService, "path": pathConvert, "port": int64(443),
		}},
	}}, "spec", "conversion"); err != nil {
		return nil, fmt.Errorf("setting the conversion of %s: %w", hyperConvergedDefinition, err)
	}
	return objects[0], nil
}
