package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// None is what Flux makes of an object that has no status yet: it waits.
const None State = "none"

// Case is an object and what is to be made of it.
type Case struct {
	// Name says what the object stands for.
	Name string `json:"name"`
	// Argo is the wanted health; empty where Argo CD's own check is left alone.
	Argo Status `json:"argo,omitempty"`
	// Flux is the wanted state; empty where Flux' own check is left alone.
	Flux State `json:"flux,omitempty"`
	// Source says where the object comes from.
	Source string `json:"source"`
	// Object is the object itself.
	Object map[string]any `json:"object"`
}

// Cases reads a file of cases.
func Cases(data []byte) ([]Case, error) {
	var cases []Case
	if err := yaml.UnmarshalStrict(data, &cases); err != nil {
		return nil, fmt.Errorf("reading the cases: %w", err)
	}
	return cases, nil
}

// Check returns an error that says what is made of the object when it is not what is wanted.
func (c Case) Check() error {
	data, err := yaml.Marshal(c.Object)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, object); err != nil { // numbers become whole where they are
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if c.Argo != "" {
		status, message, err := Argo(object)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if status != c.Argo {
			return fmt.Errorf("%s: Argo CD takes it for %s (%s), not for %s", c.Name, status, message, c.Argo)
		}
	}
	return c.checkFlux(object)
}

func (c Case) checkFlux(object *unstructured.Unstructured) error {
	if c.Flux == "" {
		return nil
	}
	state, err := Flux(object)
	if c.Flux == None {
		if err == nil {
			return fmt.Errorf("%s: Flux takes it for %s, though it says nothing yet", c.Name, state)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if state != c.Flux {
		return fmt.Errorf("%s: Flux takes it for %s, not for %s", c.Name, state, c.Flux)
	}
	return nil
}
