"""What is quoted of fabrics: how far tiers reach, what rails, planes, tori and dragonflies buy."""
