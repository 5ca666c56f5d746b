"""What several systems under test are made of: keys, interception, routes and address translation."""
