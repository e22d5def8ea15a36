"""What is quoted of servers and their NVLink domains, against records, networks and rates."""
